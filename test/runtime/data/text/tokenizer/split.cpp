#include "shale/runtime/data/text/tokenizer/split.h"

#include <array>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/unicode.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"

namespace shale::tokenizer_internal {
namespace {

// The texts that make_splits.py uses.
constexpr std::u32string_view kShort = U"'sLl\u017f\u5b57\u03011\u00b2 \n\u3000/_";
constexpr std::u32string_view kMore =
    U"aZtTdDmMrReEvV0\u0663\u2167\t\r\u0085\u00a0.-=\u00e9\u01c5\u02b0\U0001f44d\u200d";

std::vector<std::string> spelled(std::u32string_view codes) {
  std::vector<std::string> characters;
  for (const char32_t code : codes) append_utf8(code, characters.emplace_back());
  return characters;
}

class Hash {
 public:
  void add_pieces(SplitPattern pattern, std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = piece_end(pattern, text, at);
      REQUIRE((end > at && end <= text.size()));
      at = end;
      add(at & 255);
      add(at >> 8);
    }
  }
  std::string hex() const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[value_ >> shift & 15];
    return text;
  }

 private:
  void add(size_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

std::string short_texts(SplitPattern pattern) {
  const std::vector<std::string> characters = spelled(kShort);
  Hash hash;
  const std::function<void(const std::string&, int)> extend = [&](const std::string& text, int n) {
    if (n == 0) return hash.add_pieces(pattern, text);
    for (const std::string& character : characters) extend(text + character, n - 1);
  };
  for (int length = 1; length <= 5; ++length) extend("", length);
  return hash.hex();
}

std::string long_texts(SplitPattern pattern) {
  const std::vector<std::string> characters =
      spelled(std::u32string(kShort) + std::u32string(kMore));
  Hash hash;
  uint64_t state = 1;
  for (int n = 0; n < 2000; ++n) {
    std::string text;
    const std::string* last = nullptr;
    for (int i = 0; i < 200; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const bool repeats = last != nullptr && state >> 63 != 0;
      if (!repeats) last = &characters[(state >> 33) % characters.size()];
      text += *last;
    }
    hash.add_pieces(pattern, text);
  }
  return hash.hex();
}

constexpr std::array kPatterns = {SplitPattern::kGpt2, SplitPattern::kCl100k, SplitPattern::kQwen,
                                  SplitPattern::kO200k};

}  // namespace

TEST_CASE("scanners split as the regular expressions do", "[tokenizer]") {
  std::ifstream expected(test::fixture_path("tokenizer/splits.txt"));
  for (const SplitPattern pattern : kPatterns) {
    std::string name, of_short, of_long;
    expected >> name >> of_short >> of_long;
    INFO(name);
    CHECK(short_texts(pattern) == of_short);
    CHECK(long_texts(pattern) == of_long);
  }
}

TEST_CASE("a pattern is found by its spelling", "[tokenizer]") {
  for (const SplitPattern pattern : kPatterns) {
    CHECK(find_pattern(regex_of(pattern)) == pattern);
  }
  CHECK(find_pattern("\\w+") == std::nullopt);
}

TEST_CASE("bytes that are no UTF-8 are symbols", "[tokenizer]") {
  const std::string_view text = "ab\xff\xe6\x97 c";
  for (const SplitPattern pattern : kPatterns) {
    CHECK(piece_end(pattern, text, 0) == 2);
    CHECK(piece_end(pattern, text, 2) == 5);
  }
}

TEST_CASE("the normal form C is that of Unicode", "[tokenizer]") {
  const auto nfc = [](std::string_view text) {
    std::string out;
    append_nfc(text, out);
    return out;
  };
  CHECK(nfc("plain caf\u00e9") == "plain caf\u00e9");
  CHECK(nfc("cafe\u0301") == "caf\u00e9");
  CHECK(nfc("a\u0323\u0307") == nfc("a\u0307\u0323"));  // marks are sorted in canonical order
  CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");         // composes a Hangul syllable
  CHECK(nfc("\u212b") == "\u00c5");        // replaces a character that has a canonical equivalent
  CHECK(nfc("\u0958") == "\u0915\u093c");  // this character is excluded from composition
  CHECK(nfc("e\xff\u0301 \xed\xa0\x80") == "e\xff\u0301 \xed\xa0\x80");
}

// The expected hash is that of Python's unicodedata (Unicode 16.0.0) for the same texts.
TEST_CASE("the normal form C holds for every character beside others", "[tokenizer]") {
  uint64_t hash = 0xcbf29ce484222325;
  std::string text, out;
  for (uint32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    text.clear();
    out.clear();
    // Combines each character with marks above, below and across it, and with the last consonant
    // and vowel of a Hangul syllable.
    for (const uint32_t c : {code, 0x301U, 0x323U, code, 0x11a8U, 0x338U, code, 0x1161U, code}) {
      append_utf8(c, text);
    }
    append_nfc(text, out);
    for (const char c : out) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  CHECK(hash == 0x983fc82d6b4060f8);
}

}  // namespace shale::tokenizer_internal
