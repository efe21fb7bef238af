#include <algorithm>
#include <unordered_map>
#include <utility>

#include "shale/runtime/data/text/tokenizer/unicode.h"
#include "shale/runtime/data/text/tokenizer/unicode_tables.h"

namespace shale::tokenizer_internal {
namespace {

// Hangul syllables are computed (The Unicode Standard, section 3.12) from a leading consonant, a
// vowel and a trailing consonant.
constexpr uint32_t kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11a7, kSyllable = 0xac00;
constexpr uint32_t kLeads = 19, kVowels = 21, kTrails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTrails;

// First of the code points that represent invalid UTF-8 bytes. They do not compose or decompose.
constexpr uint32_t kRawByte = 0x110000;

class NormalForm {
 public:
  static const NormalForm& get() {
    static const NormalForm form;
    return form;
  }

  uint8_t combining_class(uint32_t code) const {
    const CombiningRun* const end = kCombiningRuns + kCombiningRunsSize;
    const CombiningRun* run = std::lower_bound(
        kCombiningRuns, end, code, [](const CombiningRun& r, uint32_t c) { return r.last < c; });
    return run != end && run->first <= code ? run->combining_class : 0;
  }

  void decompose(uint32_t code, std::vector<uint32_t>& out) const {
    if (code - kSyllable < kSyllables) {
      const uint32_t index = code - kSyllable;
      out.push_back(kLead + index / (kVowels * kTrails));
      out.push_back(kVowel + index / kTrails % kVowels);
      if (index % kTrails != 0) out.push_back(kTrail + index % kTrails);
      return;
    }
    const auto it = parts_.find(code);
    if (it == parts_.end()) return out.push_back(code);
    decompose(it->second.first, out);  // recursive; the table limits the depth
    if (it->second.second != 0) out.push_back(it->second.second);
  }

  // Returns the character that two characters compose to; 0 if they do not compose.
  uint32_t compose(uint32_t first, uint32_t second) const {
    if (first - kLead < kLeads && second - kVowel < kVowels) {
      return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTrails;
    }
    const bool is_open = first - kSyllable < kSyllables && (first - kSyllable) % kTrails == 0;
    if (is_open && second - (kTrail + 1) < kTrails - 1) return first + (second - kTrail);
    const auto it = wholes_.find(uint64_t{first} << 32 | second);
    return it == wholes_.end() ? 0 : it->second;
  }

 private:
  NormalForm() {
    for (size_t i = 0; i < kCompositionsSize; ++i) {
      const Decomposition& d = kCompositions[i];
      wholes_[uint64_t{d.first} << 32 | d.second] = d.whole;
      parts_[d.whole] = {d.first, d.second};
    }
    for (size_t i = 0; i < kOneWayDecompositionsSize; ++i) {
      const Decomposition& d = kOneWayDecompositions[i];
      parts_[d.whole] = {d.first, d.second};
    }
  }
  std::unordered_map<uint64_t, uint32_t> wholes_;
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> parts_;
};

// Returns true if the text has only characters below U+0300. Such a text is its own normal form.
bool is_simple(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

struct Mark {
  uint32_t code = 0;
  uint8_t combining_class = 0;
};

// Returns the decomposed characters. The marks after each base character are in canonical order.
std::vector<Mark> decomposed(std::string_view text, const NormalForm& form) {
  std::vector<uint32_t> codes;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    const Utf8Char c = decode_utf8(at, end);
    if (c.code == Utf8Char::kInvalid) {
      codes.push_back(kRawByte + static_cast<unsigned char>(*at));
    } else {
      form.decompose(c.code, codes);
    }
    at += c.bytes;
  }
  std::vector<Mark> chars;
  chars.reserve(codes.size());
  for (const uint32_t code : codes) chars.push_back({code, form.combining_class(code)});
  const auto is_mark = [](const Mark& c) { return c.combining_class != 0; };
  for (auto at = chars.begin(); at != chars.end();) {
    const auto first = std::find_if(at, chars.end(), is_mark);
    at = std::find_if_not(first, chars.end(), is_mark);
    std::stable_sort(first, at, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
  }
  return chars;
}

}  // namespace

void append_nfc(std::string_view text, std::string& out) {
  if (is_simple(text)) {
    out += text;
    return;
  }
  const NormalForm& form = NormalForm::get();
  std::vector<Mark> chars = decomposed(text, form);
  // number of characters kept so far; index of the last base character
  size_t kept = 0, base = chars.size();
  for (size_t i = 0; i < chars.size(); ++i) {
    const Mark c = chars[i];
    // A character composes with the base only if no mark between them blocks it.
    const bool reaches =
        base < kept && (kept == base + 1 || (chars[kept - 1].combining_class != 0 &&
                                             chars[kept - 1].combining_class < c.combining_class));
    const uint32_t whole = reaches ? form.compose(chars[base].code, c.code) : 0;
    if (whole != 0) {
      chars[base].code = whole;
      continue;
    }
    if (c.combining_class == 0) base = kept;
    chars[kept++] = c;
  }
  for (size_t i = 0; i < kept; ++i) {
    const uint32_t code = chars[i].code;
    if (code >= kRawByte) {
      out += static_cast<char>(code - kRawByte);
    } else {
      append_utf8(code, out);
    }
  }
}

}  // namespace shale::tokenizer_internal
