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

// Writes tokens to a folder as llm.c shards, "KIND_000012.bin". A shard file appears only when it
// is complete.
class ShardWriter {
 public:
  // next: index of the first shard to write.
  ShardWriter(std::string folder, std::string kind, TokenWidth width, int64_t shard_tokens,
              int64_t next);

  // Appends tokens until the current shard is full. Returns the number of tokens appended.
  int64_t append(std::span<const int32_t> tokens);
  bool is_full() const { return tokens_ == shard_tokens_; }
  bool is_empty() const { return tokens_ == 0; }
  // Renames the current shard to its final name, if it has tokens. The next token begins a new
  // shard.
  void commit();
  int64_t shards() const { return next_; }  // number of shards with final names

 private:
  void flush();

  const std::string folder_, kind_;
  const TokenWidth width_;
  const int64_t shard_tokens_;
  int64_t next_;
  std::optional<AtomicFile> file_;
  int64_t tokens_ = 0;   // number of tokens in the current shard
  int64_t written_ = 0;  // number of bytes in the current shard
  std::vector<std::byte> buffer_;
};

}  // namespace shale::corpus_internal
