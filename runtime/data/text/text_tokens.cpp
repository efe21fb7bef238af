#include "shale/runtime/data/text/text_tokens.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale::data_internal {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;

// A part of one document's text, and its tokens.
struct Part {
  size_t document;
  std::string_view text;
  std::vector<std::byte> tokens = {};
};

std::vector<Part> parts_of(const std::vector<TokenPiece>& documents,
                           const std::vector<PieceBytes>& texts, const Tokenizer& tokenizer) {
  std::vector<Part> parts;
  for (size_t i = 0; i < documents.size(); ++i) {
    std::string_view rest(reinterpret_cast<const char*>(texts[i].data),
                          static_cast<size_t>(documents[i].tokens));
    while (!rest.empty()) {
      const size_t end =
          rest.size() <= kPartBytes ? rest.size() : tokenizer.find_cut(rest, kPartBytes);
      parts.push_back({i, rest.substr(0, end)});
      rest.remove_prefix(end);
    }
  }
  return parts;
}

std::vector<std::byte> packed(const std::vector<int32_t>& ids, TokenWidth width) {
  const auto size = static_cast<size_t>(width);
  std::vector<std::byte> bytes(ids.size() * size);
  for (size_t i = 0; i < ids.size(); ++i) {
    // copies the low bytes, which come first (little-endian)
    std::memcpy(&bytes[i * size], &ids[i], size);
  }
  return bytes;
}

}  // namespace

TokenWidth token_width(int64_t vocab_size) {
  constexpr int64_t kShort = 1 << 16;
  return vocab_size <= kShort ? TokenWidth::k16 : TokenWidth::k32;
}

std::vector<TokenPiece> tokenize_documents(const std::vector<TokenPiece>& documents,
                                           const StoredTokenizer& tokenizer, int threads,
                                           const OnReading& on_reading) {
  const TokenWidth width = token_width(tokenizer.tokenizer.vocab_size());
  const std::vector<PieceBytes> texts(documents.begin(), documents.end());
  std::vector<Part> parts = parts_of(documents, texts, tokenizer.tokenizer);
  const size_t workers = std::max<size_t>(static_cast<size_t>(threads), 1);
  std::vector<std::unique_ptr<TokenEncoder>> encoders(workers);
  std::mutex telling;
  in_parallel(parts.size(), workers, [&](size_t i, size_t worker) {
    Part& part = parts[i];
    const TokenPiece& document = documents[part.document];
    if (on_reading) {
      const std::lock_guard lock(telling);
      on_reading(document.name);
    }
    std::unique_ptr<TokenEncoder>& encoder = encoders[worker];
    if (encoder == nullptr) encoder = std::make_unique<TokenEncoder>(tokenizer.tokenizer);
    try {
      part.tokens = packed(encoder->encode(part.text), width);
    } catch (const DataError& error) {
      throw DataError(cat(document.name, ": ", error.what()));
    }
  });
  std::vector<TokenPiece> pieces;
  std::vector<std::shared_ptr<std::vector<std::byte>>> tokens(documents.size());
  std::vector<int32_t> begin;
  if (const auto token = begin_of_document(tokenizer)) begin.push_back(*token);
  for (auto& one : tokens) one = std::make_shared<std::vector<std::byte>>(packed(begin, width));
  for (Part& part : parts) {
    std::vector<std::byte>& all = *tokens[part.document];
    all.insert(all.end(), part.tokens.begin(), part.tokens.end());
    part.tokens = {};
  }
  for (size_t i = 0; i < documents.size(); ++i) {
    texts[i].check();
    const auto size = static_cast<int64_t>(width);
    pieces.push_back({.memory = {tokens[i], tokens[i]->data()},
                      .tokens = std::ssize(*tokens[i]) / size,
                      .name = documents[i].name,
                      .crc = documents[i].crc});
  }
  return pieces;
}

}  // namespace shale::data_internal
