#include "shale/runtime/data/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_state.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {
namespace {

// Returns true if the bytes are the beginning of a UTF-8 character and more bytes could complete
// it.
bool is_incomplete(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const size_t whole = lead >= 0xc2 && lead < 0xe0   ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 1;
  if (bytes.size() >= whole) return false;
  // Completes the character with bytes that make it valid. The second byte must not make it
  // overlong, a surrogate, or too large.
  std::string filled(bytes);
  if (filled.size() == 1) filled += lead == 0xe0 ? '\xa0' : lead == 0xf0 ? '\x90' : '\x80';
  filled.resize(whole, '\x80');
  return tokenizer_internal::decode_utf8(filled.data(), filled.data() + whole).bytes == whole;
}

// Returns the number of bytes at the end of the text that begin an incomplete character.
size_t incomplete_tail(std::string_view text) {
  for (size_t bytes = std::min<size_t>(3, text.size()); bytes > 0; --bytes) {
    const std::string_view tail = text.substr(text.size() - bytes);
    if (static_cast<unsigned char>(tail[0]) >= 0xc0 && is_incomplete(tail)) return bytes;
  }
  return 0;
}

bool is_there(const Tokenizer::State& state, int32_t id) {
  const auto i = static_cast<size_t>(id);
  return id >= 0 && i < state.exists.size() && state.exists[i];
}

// Returns true if the decoded text must contain the token. Throws DataError for an id without a
// token.
bool is_shown(const Tokenizer::State& state, int32_t id, bool show_special) {
  if (!is_there(state, id)) {
    throw DataError(cat("no token has the id ", id, ", expected one below ", state.exists.size()));
  }
  return show_special || !state.is_special[static_cast<size_t>(id)];
}

// Removes spec.strip from the start of a text, repeatedly, but at most `left` times.
void strip_start(const TokenizerSpec& spec, int64_t& left, std::string& text) {
  if (spec.strip.empty()) left = 0;
  for (; left > 0 && text.starts_with(spec.strip); --left) text.erase(0, spec.strip.size());
  if (!text.empty()) left = 0;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec) : state_(std::make_unique<State>(std::move(spec))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&& other) noexcept = default;

Tokenizer Tokenizer::load(const std::string& path) {
  return Tokenizer(read_tokenizer_json(path));
}

const TokenizerSpec& Tokenizer::spec() const {
  return state_->spec;
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(state_->shown.size());
}

size_t Tokenizer::begin_text(std::vector<int32_t>& ids) const {
  const std::vector<int32_t>& before = spec().before;
  if (std::ranges::mismatch(before, ids).in1 == before.end()) return 0;
  ids.insert(ids.begin(), before.begin(), before.end());
  return before.size();
}

std::optional<int32_t> Tokenizer::find(std::string_view text) const {
  for (const AddedToken& token : state_->spec.added) {
    if (token.text == text) return token.id;
  }
  const int32_t id = state_->vocabulary.find(text);
  if (id == tokenizer_internal::Vocabulary::kNone) return {};
  return id;
}

bool Tokenizer::has(int32_t id) const {
  return is_there(*state_, id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool show_special) const {
  const State& state = *state_;
  std::string text;
  for (const int32_t id : ids) {
    if (is_shown(state, id, show_special)) text += state.shown[static_cast<size_t>(id)];
  }
  int64_t strips = state.spec.strip_most;
  strip_start(state.spec, strips, text);
  return text;
}

std::string StreamDecoder::push(int32_t id) {
  const Tokenizer::State& state = tokenizer_.state();
  if (is_shown(state, id, show_special_)) {
    std::string text = state.shown[static_cast<size_t>(id)];
    strip_start(state.spec, strips_, text);
    pending_ += text;
  }
  const size_t kept = incomplete_tail(pending_);
  std::string out = pending_.substr(0, pending_.size() - kept);
  pending_.erase(0, out.size());
  return out;
}

std::string StreamDecoder::finish() {
  strips_ = tokenizer_.spec().strip_most;
  return std::exchange(pending_, {});
}

}  // namespace shale
