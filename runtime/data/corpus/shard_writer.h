#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shale/runtime/data/tokens/piece_stream.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::corpus_internal {

// Writes tokens as llm.c's shards to a folder, "KIND_000012.bin"; each appears whole.
class ShardWriter {
 public:
  // `next`: the number of the first shard.
  ShardWriter(std::string folder, std::string kind, TokenWidth width, int64_t shard_tokens,
              int64_t next);

  // Takes tokens until the shard is full; returns how many.
  int64_t append(std::span<const int32_t> tokens);
  bool is_full() const { return tokens_ == shard_tokens_; }
  bool is_empty() const { return tokens_ == 0; }
  // Gives the shard its name, if it has tokens; the next token begins another.
  void commit();
  int64_t shards() const { return next_; }  // that have their names

 private:
  void flush();

  const std::string folder_, kind_;
  const TokenWidth width_;
  const int64_t shard_tokens_;
  int64_t next_;
  std::optional<AtomicFile> file_;
  int64_t tokens_ = 0;   // of the shard
  int64_t written_ = 0;  // its bytes
  std::vector<std::byte> buffer_;
};

}  // namespace shale::corpus_internal
