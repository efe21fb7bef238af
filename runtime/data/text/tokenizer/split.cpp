#include "shale/runtime/data/text/tokenizer/split.h"

#include <algorithm>
#include <array>

#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::tokenizer_internal {
namespace {

constexpr CharSet kCapitals = set_of(CharClass::kUpper);
constexpr CharSet kCaseless = set_of(CharClass::kUncased) | set_of(CharClass::kMark);
// Classes that can begin a word in o200k's expression: capitals, and characters without case.
constexpr CharSet kNotSmall = kCapitals | kCaseless;
// classes that can continue a word
constexpr CharSet kNotCapital = set_of(CharClass::kLower) | kCaseless;

struct Char {
  CharSet set = 0;  // set with the class of the character; empty at the end of the text
  uint32_t bytes = 0;
};

// Matches the alternatives of the regular expressions. Functions return the end of a match; kNone
// if there is no match.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), table_(CharTable::get()) {}
  static constexpr size_t kNone = std::string_view::npos;

  Char at(size_t i) const {
    if (i >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[i]);
    if (byte < 0x80) return {table_.ascii(byte), 1};
    const Utf8Char c = decode_utf8(text_.data() + i, text_.data() + text_.size());
    return {table_.of(c.code), c.bytes};
  }
  bool is(size_t i, char c) const { return i < text_.size() && text_[i] == c; }
  bool is_line_end(size_t i) const { return is(i, '\n') || is(i, '\r'); }

  // Returns the end of a run of characters in the classes `set` that begins at i and has at most
  // `most` characters.
  size_t run(size_t i, CharSet set, size_t most = kNone) const {
    for (; most > 0; --most) {
      const Char c = at(i);
      if ((c.set & set) == 0) break;
      i += c.bytes;
    }
    return i;
  }

  // Matches '(?:[sdmt]|ll|ve|re)
  size_t contraction(size_t i) const {
    if (!is(i, '\'')) return kNone;
    const std::string_view rest = text_.substr(i + 1, 2);
    if (rest.empty()) return kNone;
    if (one_of(rest[0], "sdmt")) return i + 2;
    return rest == "ll" || rest == "ve" || rest == "re" ? i + 3 : kNone;
  }
  // Matches contraction() ignoring case. U+017F, the long s, matches S.
  size_t any_case_contraction(size_t i) const {
    if (!is(i, '\'')) return kNone;
    std::array<char, 2> rest{};
    const std::string_view found = text_.substr(i + 1, 2);
    if (found == "\u017f") return i + 3;
    std::transform(found.begin(), found.end(), rest.begin(), lower);
    if (found.empty()) return kNone;
    if (one_of(rest[0], "sdmt")) return i + 2;
    const std::string_view pair(rest.data(), 2);
    return pair == "ll" || pair == "ve" || pair == "re" ? i + 3 : kNone;
  }

  // Matches \s+(?!\S)|\s+ : before a non-space, the last space is left for the next piece.
  size_t spaces(size_t begin) const {
    size_t last = begin, end = begin;
    for (Char c = at(end); (c.set & kSpaces) != 0; c = at(end)) {
      last = end;
      end += c.bytes;
    }
    return end == text_.size() || last == begin ? end : last;
  }
  // Matches \s*[\r\n]+|\s+(?!\S)|\s+ : the first alternative ends after the last line end in the
  // run of spaces.
  size_t lines_or_spaces(size_t begin) const {
    size_t last = begin, end = begin, lines = begin;
    for (Char c = at(end); (c.set & kSpaces) != 0; c = at(end)) {
      last = end;
      if (is_line_end(end)) lines = end + 1;
      end += c.bytes;
    }
    if (lines > begin) return lines;
    return end == text_.size() || last == begin ? end : last;
  }

  // Matches  ?[^\s\p{L}\p{N}]+ and then any number of characters that are in `closing`.
  size_t symbols(size_t i, std::string_view closing) const {
    const size_t begin = is(i, ' ') ? i + 1 : i;
    size_t end = run(begin, kSymbols);
    if (end == begin) return kNone;
    while (end < text_.size() && one_of(text_[end], closing)) ++end;
    return end;
  }

  // Matches [first]*[second]+. The class `first` contains capitals, `second` contains small
  // letters, and both contain characters without case.
  size_t ends_small(size_t begin) const {
    size_t end = begin, caseless_end = kNone;
    for (Char c = at(end); (c.set & kNotSmall) != 0; c = at(end)) {
      end += c.bytes;
      if ((c.set & kCaseless) != 0) caseless_end = end;
    }
    const size_t small_end = run(end, kNotCapital);
    // If no small letter follows, [first]* backtracks to the last character without case, so that
    // [second]+ can match it.
    return small_end > end ? small_end : caseless_end;
  }
  // Matches [first]+[second]*
  size_t begins_capital(size_t begin) const {
    const size_t end = run(begin, kNotSmall);
    return end == begin ? kNone : run(end, kNotCapital);
  }

  // Returns true if the character matches [^\r\n\p{L}\p{N}].
  bool may_precede_letters(size_t i, Char c) const {
    return (c.set & (kLetters | kNumbers)) == 0 && !is_line_end(i);
  }

 private:
  static bool one_of(char c, std::string_view set) { return set.find(c) != set.npos; }
  static char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

  std::string_view text_;
  const CharTable& table_;
};

size_t gpt2_piece(const Scanner& scan, size_t begin) {
  if (const size_t end = scan.contraction(begin); end != scan.kNone) return end;
  const size_t word = scan.is(begin, ' ') ? begin + 1 : begin;
  const CharSet set = scan.at(word).set;
  for (const CharSet kind : {kLetters, kNumbers, kSymbols}) {
    if ((set & kind) != 0) return scan.run(word, kind);
  }
  return scan.spaces(begin);
}

size_t cl100k_piece(const Scanner& scan, size_t begin, size_t digits) {
  if (const size_t end = scan.any_case_contraction(begin); end != scan.kNone) return end;
  const Char first = scan.at(begin);
  if ((first.set & kLetters) != 0) return scan.run(begin, kLetters);
  if ((first.set & kNumbers) != 0) return scan.run(begin, kNumbers, digits);
  if (scan.may_precede_letters(begin, first)) {
    const size_t word = begin + first.bytes;
    const size_t end = scan.run(word, kLetters);
    if (end > word) return end;
  }
  if (const size_t end = scan.symbols(begin, "\r\n"); end != scan.kNone) return end;
  return scan.lines_or_spaces(begin);
}

size_t o200k_word(const Scanner& scan, size_t begin, Char first) {
  const bool precedes = scan.may_precede_letters(begin, first);
  size_t end = scan.kNone;
  if (precedes) end = scan.ends_small(begin + first.bytes);
  if (end == scan.kNone) end = scan.ends_small(begin);
  if (end == scan.kNone && precedes) end = scan.begins_capital(begin + first.bytes);
  if (end == scan.kNone) end = scan.begins_capital(begin);
  if (end == scan.kNone) return end;
  const size_t contracted = scan.any_case_contraction(end);
  return contracted != scan.kNone ? contracted : end;
}

size_t o200k_piece(const Scanner& scan, size_t begin) {
  const Char first = scan.at(begin);
  if ((first.set & kNumbers) != 0) return scan.run(begin, kNumbers, 3);
  if (const size_t end = o200k_word(scan, begin, first); end != scan.kNone) return end;
  if (const size_t end = scan.symbols(begin, "\r\n/"); end != scan.kNone) return end;
  return scan.lines_or_spaces(begin);
}

struct Spelling {
  std::string_view regex;
  SplitPattern pattern;
};

constexpr std::array kSpellings = {
    Spelling{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
             SplitPattern::kGpt2},
    Spelling{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
             SplitPattern::kCl100k},
    Spelling{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
             SplitPattern::kQwen},
    Spelling{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
             R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
             R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
             R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
             SplitPattern::kO200k},
};

}  // namespace

std::optional<SplitPattern> find_pattern(std::string_view regex) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.regex == regex) return spelling.pattern;
  }
  return {};
}

std::string_view regex_of(SplitPattern pattern) {
  return std::find_if(kSpellings.begin(), kSpellings.end(),
                      [pattern](const Spelling& s) { return s.pattern == pattern; })
      ->regex;
}

size_t piece_end(SplitPattern pattern, std::string_view text, size_t begin) {
  const Scanner scan(text);
  switch (pattern) {
    case SplitPattern::kGpt2: return gpt2_piece(scan, begin);
    case SplitPattern::kCl100k: return cl100k_piece(scan, begin, 3);
    case SplitPattern::kQwen: return cl100k_piece(scan, begin, 1);
    case SplitPattern::kO200k: break;
  }
  return o200k_piece(scan, begin);
}

}  // namespace shale::tokenizer_internal
