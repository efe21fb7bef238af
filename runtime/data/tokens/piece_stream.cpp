#include "shale/runtime/data/tokens/piece_stream.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

// Number of iterations of an inner loop. A constant lets the compiler vectorise the loop at -O2.
constexpr int64_t kBlock = 1024;
constexpr size_t kLongestName = 4096;  // maximum length of a file name in messages

template <typename T>
uint32_t max_of(const T* tokens, int64_t count) {
  T largest = 0;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int64_t k = 0; k < kBlock; ++k) largest = std::max(largest, tokens[i + k]);
  }
  for (; i < count; ++i) largest = std::max(largest, tokens[i]);
  return largest;
}

// Copies tokens to int32. Tokens of 2^31 or more become negative; the caller checks for them.
template <typename T>
void widen(const std::byte* data, std::span<int32_t> out) {
  const T* tokens = reinterpret_cast<const T*>(data);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(tokens[i]);
}

uint32_t token_at(const std::byte* data, TokenWidth width, int64_t i) {
  switch (width) {
    case TokenWidth::k8:
      return std::to_integer<uint32_t>(data[i]);
    case TokenWidth::k16:
      return reinterpret_cast<const uint16_t*>(data)[i];
    case TokenWidth::k32:
      return reinterpret_cast<const uint32_t*>(data)[i];
  }
  return 0;
}

// Returns the vocabulary size, limited to 2^31 because tokens are int32.
int64_t effective_bound(int64_t vocab_bound) {
  return std::min(vocab_bound, int64_t{1} << 31);
}

[[noreturn]] void fail_token(const TokenPiece& piece, const std::byte* data, TokenWidth width,
                             int64_t vocab_bound) {
  for (int64_t i = 0; i < piece.tokens; ++i) {
    const uint32_t token = token_at(data, width, i);
    if (token >= effective_bound(vocab_bound)) {
      throw DataError(cat(excerpt(piece.name, kLongestName), ": token ", token, " at position ",
                          piece.first_token + i, ", expected a token below ",
                          effective_bound(vocab_bound), ", the size of the vocabulary"));
    }
  }
  throw DataError(
      cat(excerpt(piece.name, kLongestName), ": the file was changed while it was read"));
}

}  // namespace

uint32_t max_token(const std::byte* data, TokenWidth width, int64_t count) {
  switch (width) {
    case TokenWidth::k8:
      return max_of(reinterpret_cast<const uint8_t*>(data), count);
    case TokenWidth::k16:
      return max_of(reinterpret_cast<const uint16_t*>(data), count);
    case TokenWidth::k32:
      return max_of(reinterpret_cast<const uint32_t*>(data), count);
  }
  return 0;
}

uint32_t check_tokens(const TokenPiece& piece, TokenWidth width, int64_t vocab_bound) {
  const PieceBytes bytes(piece);
  const uint32_t largest = max_token(bytes.data, width, piece.tokens);
  bytes.check();
  if (piece.tokens > 0 && largest >= effective_bound(vocab_bound)) {
    fail_token(piece, bytes.data, width, vocab_bound);
  }
  return largest;
}

PieceBytes::PieceBytes(const TokenPiece& piece)
    : file(piece.files == nullptr ? nullptr : piece.files->map(piece.file)),
      data((file == nullptr ? piece.memory.get() : file->bytes().data()) + piece.offset) {}

PieceStream::PieceStream(std::vector<TokenPiece> pieces, const Options& options)
    : options_(options) {
  std::erase_if(pieces, [](const TokenPiece& piece) { return piece.tokens == 0; });
  pieces_ = std::move(pieces);
  starts_.reserve(pieces_.size());
  for (const TokenPiece& piece : pieces_) {
    if (!starts_.empty() && options_.separator) ++size_;
    starts_.push_back(size_);
    if (__builtin_add_overflow(size_, piece.tokens, &size_)) {
      throw InternalError("token stream: more than 2^63 tokens");
    }
  }
}

void PieceStream::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || begin > size_ || count > size_ - begin) {
    throw InternalError(cat("token stream: read of ", count, " tokens at ", begin,
                            ", expected a range in [0, ", size_, ")"));
  }
  if (count == 0) return;
  // Finds the last piece that starts at or before `begin`.
  auto index = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                   starts_.begin() - 1);
  int64_t done = 0;
  for (; done < count; ++index) {
    const TokenPiece& piece = pieces_[index];
    const int64_t first = begin + done - starts_[index];
    // If reading begins at the separator after the piece, `first` is beyond the end of the piece.
    const int64_t here = std::clamp(piece.tokens - first, int64_t{0}, count - done);
    if (here > 0) {
      copy_tokens(piece, first, out.subspan(static_cast<size_t>(done), static_cast<size_t>(here)));
    }
    done += here;
    if (done < count && options_.separator) out[static_cast<size_t>(done++)] = *options_.separator;
  }
}

void PieceStream::copy_tokens(const TokenPiece& piece, int64_t first,
                              std::span<int32_t> out) const {
  const PieceBytes bytes(piece);
  const std::byte* data = bytes.data + first * static_cast<int>(options_.width);
  switch (options_.width) {
    case TokenWidth::k8:
      widen<uint8_t>(data, out);
      break;
    case TokenWidth::k16:
      widen<uint16_t>(data, out);
      break;
    case TokenWidth::k32:
      widen<uint32_t>(data, out);
      break;
  }
  bytes.check();
  if (options_.separator && std::find(out.begin(), out.end(), *options_.separator) != out.end()) {
    throw DataError(cat(excerpt(piece.name, kLongestName), ": byte ", *options_.separator,
                        " near position ", piece.first_token + first,
                        ", which the file did not contain when it was opened"));
  }
  const auto count = static_cast<int64_t>(out.size());
  // Checks the copy and not the file, because the file could change after the check.
  const auto* copied = reinterpret_cast<const std::byte*>(out.data());
  if (max_token(copied, TokenWidth::k32, count) >= effective_bound(options_.vocab_bound) &&
      count > 0) {
    TokenPiece part = piece;
    part.tokens = count;
    part.first_token += first;
    fail_token(part, data, options_.width, options_.vocab_bound);
  }
}

}  // namespace shale
