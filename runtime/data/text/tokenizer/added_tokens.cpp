#include "shale/runtime/data/text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::tokenizer_internal {
namespace {

CharSet set_before(std::string_view text, size_t at) {
  return at == 0 ? 0 : CharTable::get().of(last_utf8(text, at).code);
}
CharSet set_at(std::string_view text, size_t at) {
  if (at == text.size()) return 0;
  return CharTable::get().of(decode_utf8(text.data() + at, text.data() + text.size()).code);
}

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  return ((set_before(text, begin) | set_at(text, end)) & kWords) != 0;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), begins_(256, false) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.empty(); });
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (const AddedToken& token : tokens_) begins_[static_cast<uint8_t>(token.text[0])] = true;
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at, bool special) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  // [first, last) are the sorted tokens that match the text so far. Each iteration compares one
  // more byte.
  for (size_t depth = 0; at + depth < text.size() && first != last; ++depth) {
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    const auto byte_of = [depth](const AddedToken& token) {
      return token.text.size() > depth ? static_cast<unsigned char>(token.text[depth]) : -1;
    };
    first = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) < byte; });
    last = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) == byte; });
    if (first != last && first->text.size() == depth + 1 && (special || !first->special)) {
      longest = &*first;
    }
  }
  return longest;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from, bool special) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    const AddedToken* token = longest_at(text, at, special);
    if (token == nullptr) continue;
    size_t begin = at, end = at + token->text.size();
    if (token->single_word && is_inside_word(text, begin, end)) {
      at = end - 1;
      continue;
    }
    while (token->lstrip && begin > from && (set_before(text, begin) & kSpaces) != 0) {
      begin -= last_utf8(text, begin).bytes;
    }
    while (token->rstrip && (set_at(text, end) & kSpaces) != 0) {
      end += decode_utf8(text.data() + end, text.data() + text.size()).bytes;
    }
    return {begin, end, token};
  }
  return {text.size(), text.size(), nullptr};
}

}  // namespace shale::tokenizer_internal
