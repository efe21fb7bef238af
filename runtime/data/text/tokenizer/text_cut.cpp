#include <algorithm>

#include "shale/runtime/data/text/tokenizer/tokenizer.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_state.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {

namespace tokenizer_internal {

// Returns true if cutting after a line's end does not change tokens. NFC does not combine a letter
// with a line's end. But an added token that is not special could contain a line's end.
bool can_cut_at_lines(const TokenizerSpec& spec) {
  const auto is_nfc = [](const NormalizeStep& step) {
    return std::holds_alternative<NfcStep>(step);
  };
  const auto is_pattern = [](const SplitStep& step) {
    return std::holds_alternative<PatternSplit>(step);
  };
  const auto sees_one_place = [&](const SplitStep& step) {
    return is_pattern(step) || std::holds_alternative<DigitSplit>(step);
  };
  const auto stays_in_line = [](const AddedToken& token) {
    return token.special || (!token.lstrip && token.text.find('\n') == std::string::npos);
  };
  return std::all_of(spec.normalizer.begin(), spec.normalizer.end(), is_nfc) &&
         std::any_of(spec.splits.begin(), spec.splits.end(), is_pattern) &&
         std::all_of(spec.splits.begin(), spec.splits.end(), sees_one_place) &&
         std::all_of(spec.added.begin(), spec.added.end(), stays_in_line);
}

size_t find_line_cut(std::string_view text, size_t from) {
  if (text.empty()) return 0;
  const CharTable& table = CharTable::get();
  const char* const end = text.data() + text.size();
  for (size_t at = text.find('\n', std::max<size_t>(from, 2) - 1); at < text.size() - 1;
       at = text.find('\n', at + 1)) {
    const Utf8Char next = decode_utf8(text.data() + at + 1, end);
    const Utf8Char last = last_utf8(text, at);
    if ((table.of(next.code) & kLetters) != 0 && (table.of(last.code) & kSpaces) == 0) {
      return at + 1;
    }
  }
  return text.size();
}

}  // namespace tokenizer_internal

size_t Tokenizer::find_cut(std::string_view text, size_t from) const {
  if (!state_->cuts_at_lines) return text.size();
  return tokenizer_internal::find_line_cut(text, from);
}

}  // namespace shale
