#include <algorithm>
#include <limits>

#include "shale/base/error.h"
#include "shale/runtime/data/text/tokenizer/bpe.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_state.h"

namespace shale {

using tokenizer_internal::AddedTokens;
using tokenizer_internal::BpeMerger;
using tokenizer_internal::hash_bytes;
using tokenizer_internal::SplitPattern;
using tokenizer_internal::Vocabulary;

namespace {

// Cache of pieces and their tokens. For each hash it holds the newest piece.
class PieceCache {
 public:
  PieceCache() : entries_(kEntries) {}

  bool append(std::string_view piece, uint64_t hash, std::vector<int32_t>& out) const {
    const Entry& entry = entries_[hash % kEntries];
    const std::string_view text(entry.text.data(), entry.bytes);
    if (entry.tokens == 0 || text != piece) return false;
    out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.tokens);
    return true;
  }
  void put(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    Entry& entry = entries_[hash % kEntries];
    if (piece.size() > entry.text.size() || ids.size() > entry.ids.size()) return;
    std::copy(piece.begin(), piece.end(), entry.text.begin());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
    entry.bytes = static_cast<uint8_t>(piece.size());
    entry.tokens = static_cast<uint8_t>(ids.size());
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 14;
  struct Entry {  // 64 bytes, one cache line
    std::array<int32_t, 8> ids;
    std::array<char, 30> text;
    uint8_t bytes = 0;
    uint8_t tokens = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace

class TokenEncoder::Impl {
 public:
  explicit Impl(const Tokenizer::State& state) : state_(state), merger_(state.merges) {}

  void append(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& out) {
    if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      throw DataError(cat("a text of ", text.size(), " bytes, expected less than 2^31"));
    }
    const TokenizerSpec& spec = state_.spec;
    if (options.add_around) out.insert(out.end(), spec.before.begin(), spec.before.end());
    cut(state_.raw_added, text, options.special_tokens, out,
        [&](std::string_view part, bool is_first) {
          append_normalized(part, is_first && options.is_first, options.special_tokens, out);
        });
    if (options.add_around) out.insert(out.end(), spec.behind.begin(), spec.behind.end());
  }

 private:
  // Finds the added tokens in a text and appends them. Calls on_part for the text between them.
  template <typename OnPart>
  static void cut(const AddedTokens& added, std::string_view text, bool special,
                  std::vector<int32_t>& out, const OnPart& on_part) {
    for (size_t at = 0; at < text.size();) {
      const AddedTokens::Match match = added.empty()
                                           ? AddedTokens::Match{text.size(), text.size(), nullptr}
                                           : added.find(text, at, special);
      if (match.begin > at) on_part(text.substr(at, match.begin - at), at == 0);
      if (match.token != nullptr) out.push_back(match.token->id);
      at = match.end;
    }
  }

  void append_normalized(std::string_view text, bool is_first, bool special,
                         std::vector<int32_t>& out) {
    std::string normalized;
    if (!state_.spec.normalizer.empty()) {
      tokenizer_internal::append_normalized(state_.spec.normalizer, text, normalized);
      text = normalized;
    }
    cut(state_.normalized_added, text, special, out,
        [&](std::string_view part, bool part_is_first) {
          append_pieces(part, is_first && part_is_first, out);
        });
  }

  void append_pieces(std::string_view text, bool is_first, std::vector<int32_t>& out) {
    const SplitPattern* pattern = state_.splitter.only_pattern();
    if (pattern == nullptr) {
      state_.splitter.split(text, is_first,
                            [&](std::string_view piece) { append_piece(piece, out); });
      return;
    }
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = tokenizer_internal::piece_end(*pattern, text, begin);
      append_piece(text.substr(begin, end - begin), out);
    }
  }

  void append_piece(std::string_view piece, std::vector<int32_t>& out) {
    const uint64_t hash = hash_bytes(piece);
    const int32_t id = state_.vocabulary.find(piece, hash);
    if (id != Vocabulary::kNone && state_.is_whole[static_cast<size_t>(id)]) {
      out.push_back(id);
      return;
    }
    if (cache_.append(piece, hash, out)) return;
    symbols_.clear();
    state_.append_symbols(piece, symbols_);
    const size_t before = out.size();
    merger_.append(symbols_, out);
    cache_.put(piece, hash, std::span(out).subspan(before));
  }

  const Tokenizer::State& state_;
  BpeMerger merger_;
  PieceCache cache_;
  std::vector<int32_t> symbols_;
};

TokenEncoder::TokenEncoder(const Tokenizer& tokenizer)
    : impl_(std::make_unique<Impl>(tokenizer.state())) {}
TokenEncoder::~TokenEncoder() = default;
TokenEncoder::TokenEncoder(TokenEncoder&& other) noexcept = default;

void TokenEncoder::append(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>& out) {
  impl_->append(text, options, out);
}

std::vector<int32_t> TokenEncoder::encode(std::string_view text, const EncodeOptions& options) {
  std::vector<int32_t> out;
  append(text, options, out);
  return out;
}

}  // namespace shale
