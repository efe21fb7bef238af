#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/runtime/io/file_maps.h"

namespace shale {

// A sequence of tokens that is contiguous in a file or in memory.
struct TokenPiece {
  std::shared_ptr<FileMaps> files = {};  // null: the tokens are in `memory`
  size_t file = 0;                       // number of the file in `files`
  std::shared_ptr<const std::byte> memory = {};
  int64_t offset = 0;  // bytes before the first token; a multiple of the token's width
  int64_t tokens = 0;
  std::string name;         // file name for messages
  int64_t first_token = 0;  // index of the piece's first token in the file, for messages
  uint32_t crc = 0;         // checksum of the file, part of DatasetSplits::checksum
};

// The bytes of a piece. They stay mapped as long as this object exists.
struct PieceBytes {
  explicit PieceBytes(const TokenPiece& piece);

  std::shared_ptr<const MappedFile> file;  // null: the piece is in memory
  const std::byte* data;                   // aligned to the token's width

  void check() const {  // throws DataError like MappedFile::check()
    if (file != nullptr) file->check();
  }
};

// The tokens of several pieces as one stream. Does not copy them.
class PieceStream final : public TokenStream {
 public:
  struct Options {
    TokenWidth width = TokenWidth::k8;
    int64_t vocab_bound = 256;
    std::optional<int32_t> separator;  // token inserted between two pieces
  };

  // Omits empty pieces. Throws InternalError if the total size overflows.
  PieceStream(std::vector<TokenPiece> pieces, const Options& options);

  int64_t size() const override { return size_; }
  int64_t vocab_bound() const override { return options_.vocab_bound; }
  void read(int64_t begin, std::span<int32_t> out) const override;

  const std::vector<TokenPiece>& pieces() const { return pieces_; }
  const Options& options() const { return options_; }

 private:
  void copy_tokens(const TokenPiece& piece, int64_t first, std::span<int32_t> out) const;

  std::vector<TokenPiece> pieces_;
  std::vector<int64_t> starts_;  // ascending: position of each piece's first token in the stream
  Options options_;
  int64_t size_ = 0;
};

// Returns the largest of `count` tokens; 0 if there are none. Runs at memory speed.
uint32_t max_token(const std::byte* data, TokenWidth width, int64_t count);

// Checks all tokens of a piece and returns the largest. Throws DataError, with file, position and
// token, for a token that is not below `vocab_bound`; also if the file cannot be read.
uint32_t check_tokens(const TokenPiece& piece, TokenWidth width, int64_t vocab_bound);

}  // namespace shale
