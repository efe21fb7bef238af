#include "shale/runtime/data/corpus/shard_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::corpus_internal {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;

std::vector<std::byte> header(TokenWidth width, int64_t tokens) {
  const bool is_short = width == TokenWidth::k16;
  const std::array<uint32_t, 3> words = {
      is_short ? data_internal::kLlmcGpt2Magic : data_internal::kLlmcLlama3Magic,
      is_short ? 1U : 7U, static_cast<uint32_t>(tokens)};
  std::vector<std::byte> bytes(static_cast<size_t>(data_internal::kLlmcHeaderBytes));
  std::memcpy(bytes.data(), words.data(), sizeof words);
  return bytes;
}

std::string shard_name(const std::string& kind, int64_t number) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%06lld.bin", static_cast<long long>(number));
  return kind + digits;
}

}  // namespace

ShardWriter::ShardWriter(std::string folder, std::string kind, TokenWidth width,
                         int64_t shard_tokens, int64_t next)
    : folder_(std::move(folder)),
      kind_(std::move(kind)),
      width_(width),
      shard_tokens_(shard_tokens),
      next_(next) {}

int64_t ShardWriter::append(std::span<const int32_t> tokens) {
  if (!file_) {
    file_.emplace(folder_ + "/" + shard_name(kind_, next_));
    written_ = data_internal::kLlmcHeaderBytes;
  }
  const int64_t count = std::min(std::ssize(tokens), shard_tokens_ - tokens_);
  const size_t size = static_cast<size_t>(width_), had = buffer_.size();
  buffer_.resize(had + static_cast<size_t>(count) * size);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    // copies the low bytes, which come first (little-endian)
    std::memcpy(&buffer_[had + i * size], &tokens[i], size);
  }
  tokens_ += count;
  if (buffer_.size() >= kBufferBytes) flush();
  return count;
}

void ShardWriter::flush() {
  file_->write_at(written_, buffer_);
  written_ += std::ssize(buffer_);
  buffer_.clear();
}

void ShardWriter::commit() {
  if (is_empty()) return;
  flush();
  file_->write_at(0, header(width_, tokens_));
  file_->commit(written_);
  file_.reset();
  tokens_ = 0;
  ++next_;
}

}  // namespace shale::corpus_internal
