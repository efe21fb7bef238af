#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::tokenizer_internal {

// Character classes that tokenizer patterns distinguish. The comments list their general categories
// and properties in Unicode 16.0.0.
enum class CharClass : uint8_t {
  kOther,
  kSpace,        // White_Space
  kUpper,        // Lu, Lt
  kLower,        // Ll
  kUncased,      // Lm, Lo
  kMark,         // M
  kNumber,       // Nd, Nl
  kOtherNumber,  // No
  kWordSymbol,   // other word characters (\w): Pc, Join_Control, Alphabetic symbols
};

// A set of character classes. Class c is the bit 1 << c.
using CharSet = uint32_t;
constexpr CharSet set_of(CharClass c) {
  return CharSet{1} << static_cast<unsigned>(c);
}
inline constexpr CharSet kSpaces = set_of(CharClass::kSpace);
inline constexpr CharSet kLetters =
    set_of(CharClass::kUpper) | set_of(CharClass::kLower) | set_of(CharClass::kUncased);
inline constexpr CharSet kNumbers =
    set_of(CharClass::kNumber) | set_of(CharClass::kOtherNumber);      // \p{N}
inline constexpr CharSet kSymbols = ~(kSpaces | kLetters | kNumbers);  // [^\s\p{L}\p{N}]
inline constexpr CharSet kWords = kLetters | set_of(CharClass::kMark) | set_of(CharClass::kNumber) |
                                  set_of(CharClass::kWordSymbol);

// A character of UTF-8 text. An invalid byte (RFC 3629) counts as a character without a class, so
// that any bytes can be split.
struct Utf8Char {
  uint32_t code = 0;  // kInvalid for an invalid byte
  uint32_t bytes = 0;
  static constexpr uint32_t kInvalid = 0xffff'ffff;
};
// Decodes the first character; requires `begin` < `end`.
Utf8Char decode_utf8(const char* begin, const char* end);
void append_utf8(uint32_t code, std::string& out);
// Decodes the character that ends at position `end`, which is above 0.
Utf8Char last_utf8(std::string_view text, size_t end);
// Returns the position of the first invalid byte; npos if all text is valid UTF-8.
size_t find_broken_utf8(std::string_view text);

// Table with the character class of each code point.
class CharTable {
 public:
  static const CharTable& get();

  // Returns a set with the class of a byte below 128.
  CharSet ascii(unsigned char byte) const { return ascii_[byte]; }
  CharSet of(uint32_t code) const {
    if (code >= 0x110000) return set_of(CharClass::kOther);
    return set_of(blocks_[size_t{block_[code / kBlock]} * kBlock + code % kBlock]);
  }

 private:
  CharTable();
  static constexpr uint32_t kBlock = 128;
  std::array<CharSet, 128> ascii_{};
  std::array<uint16_t, 0x110000 / kBlock> block_{};
  std::vector<CharClass> blocks_;  // the distinct blocks of the table, each stored once
};

// Converts text to Normalization Form C and appends it. Invalid UTF-8 bytes stay in place.
void append_nfc(std::string_view text, std::string& out);

}  // namespace shale::tokenizer_internal
