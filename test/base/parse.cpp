#include "shale/base/parse.h"

#include <limits>
#include <vector>

#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("parse_int takes integers in every spelling that has an integer value", "[base]") {
  const auto [text, value] = GENERATE(
      table<std::string, int64_t>({{"0", 0},
                                   {"-0", 0},
                                   {"7", 7},
                                   {"+7", 7},
                                   {"-7", -7},
                                   {"007", 7},
                                   {"1e6", 1000000},
                                   {"1E+6", 1000000},
                                   {"1.5e3", 1500},
                                   {"2.0", 2},
                                   {"2.", 2},
                                   {".5e1", 5},
                                   {"100e-2", 1},
                                   {"0e99999", 0},
                                   {"0.000e-5", 0},
                                   {"-1e3", -1000},
                                   {"9007199254740993", 9007199254740993},
                                   {"9.007199254740993e15", 9007199254740993},
                                   {"9223372036854775807", std::numeric_limits<int64_t>::max()},
                                   {"-9223372036854775808", std::numeric_limits<int64_t>::min()},
                                   {"0000000000000000000000000000012", 12}}));
  CAPTURE(text);
  REQUIRE(parse_int(text).has_value());
  CHECK(*parse_int(text) == value);
}

TEST_CASE("parse_int refuses what is not an integer, does not fit, or goes on", "[base]") {
  const std::string text = GENERATE(
      as<std::string>{}, "", " ", "-", "+", ".", "e6", "1e", "1e+", "1e-", "abc", "1x", "1 ", " 1",
      "1,000", "0x10", "1.5", "1e-1", "1.05e1", "nan", "inf", "-inf", "infinity", "1e6.0", "1e++6",
      "1e+-6", "--1", "+-1", "1.2.3", "9223372036854775808", "-9223372036854775809", "1e19",
      "1e999", "1e99999999999999999999", "99999999999999999999999999", "1_000", "one",
      "1e-9223372036854775808", "1e9223372036854775807");
  CAPTURE(text);
  CHECK_FALSE(parse_int(text).has_value());
}

TEST_CASE("parse_real takes finite decimals", "[base]") {
  const auto [text, value] =
      GENERATE(table<std::string, double>({{"0", 0.0},
                                           {"1", 1.0},
                                           {"+1.5", 1.5},
                                           {"-.5", -0.5},
                                           {"3e-4", 3e-4},
                                           {"2.", 2.0},
                                           {"1E3", 1000.0},
                                           {"1.7976931348623157e308", 1.7976931348623157e308}}));
  CAPTURE(text);
  REQUIRE(parse_real(text).has_value());
  CHECK(*parse_real(text) == value);
}

TEST_CASE("parse_real refuses inf, nan, overflow and what is behind a number", "[base]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "nan", "NaN", "-nan", "inf", "-inf", "+inf", "infinity",
               "1e999", "-1e999", "1e-999", "1.0x", "1.0 ", " 1.0", "1,5", "0x1p3", "1e", "..1",
               "+-1", "-", "nan(1)", "1e5f", "1e1000000000000");
  CAPTURE(text);
  CHECK_FALSE(parse_real(text).has_value());
}

TEST_CASE("parse_size knows powers of 1024 and of 1000, in any case", "[base]") {
  const auto [text, bytes] = GENERATE(table<std::string, int64_t>({{"0", 0},
                                                                   {"17", 17},
                                                                   {"1e6", 1000000},
                                                                   {"17B", 17},
                                                                   {"1KiB", 1024},
                                                                   {"512MiB", 536870912},
                                                                   {"512mib", 536870912},
                                                                   {"2GiB", 2147483648},
                                                                   {"1.5GiB", 1610612736},
                                                                   {"1TiB", 1099511627776},
                                                                   {"1kB", 1000},
                                                                   {"3MB", 3000000},
                                                                   {"2gb", 2000000000},
                                                                   {"1TB", 1000000000000},
                                                                   {"0.1KiB", 102},
                                                                   {"1e1MiB", 10485760}}));
  CAPTURE(text);
  REQUIRE(parse_size(text).has_value());
  CHECK(*parse_size(text) == bytes);
}

TEST_CASE("parse_size refuses unknown units, negative sizes and overflow", "[base]") {
  const std::string text = GENERATE(as<std::string>{}, "", "MiB", "512M", "512 MiB", "512Mib/s",
                                    "-1", "-1MiB", "1.5", "8388608TiB", "1e300GiB", "9e18GiB",
                                    "nanMiB", "infB", "1GiB1", "0x1MiB", "1e", "1eMiB");
  CAPTURE(text);
  CHECK_FALSE(parse_size(text).has_value());
}

TEST_CASE("format_real reads back as the same value and stays short", "[base]") {
  CHECK(format_real(3e-4f) == "0.0003");
  CHECK(format_real(0.1f) == "0.1");
  CHECK(format_real(6e-5) == "6e-05");
  CHECK(format_real(1.0) == "1");
  CHECK(format_real(0.1 + 0.2) == "0.30000000000000004");
  const double value = GENERATE(1.0 / 3, 2.0 / 3e10, -1e-300, 123456789.123, 1e22);
  CHECK(parse_real(format_real(value)) == value);
  const auto narrow = static_cast<float>(value);
  CHECK(static_cast<float>(*parse_real(format_real(narrow))) == narrow);
}

TEST_CASE("excerpt keeps short text and cuts long text to its length", "[base]") {
  CHECK(excerpt("").empty());
  CHECK(excerpt(std::string(100, 'x')) == std::string(100, 'x'));
  const std::string cut(97, 'x');
  CHECK(excerpt(std::string(101, 'x')) == cut + "...");
  CHECK(excerpt("abcdefgh", 6) == "abc...");
}

TEST_CASE("excerpt spells control characters and keeps characters whole", "[base]") {
  CHECK(excerpt("a\nb\x1b[2J\x7f") ==
        "a\\x0a"
        "b\\x1b[2J\\x7f");
  CHECK(excerpt(std::string("a\0b", 3)) ==
        "a\\x00"
        "b");
  CHECK(excerpt("\xc2\x9b\u00e9\u4e2d\U0001f600") == "\\x9b\u00e9\u4e2d\U0001f600");
  CHECK(excerpt("ab\u4e2d\u4e2d", 7) == "ab...");  // does not cut a character in two
  CHECK(excerpt("abcd\n", 7) == "abcd...");
  CHECK(excerpt("\xff\xe4\xb8") == "\\xff\\xe4\\xb8");  // bytes that are not UTF-8
  CHECK(excerpt("\x9b[31m", 10) == "\\x9b[31m");        // 8-bit control character of terminals
}

TEST_CASE("printable spells what is no UTF-8 and what is no character to print", "[base]") {
  CHECK(printable("") == "");
  CHECK(printable("a\r\nerror: b\t") == "a\\x0d\\x0aerror: b\\x09");
  CHECK(printable("a\n\tb\x1b", "\n\t") == "a\n\tb\\x1b");
  CHECK(printable("\u00e9\u4e2d\U0001f600\\") == "\u00e9\u4e2d\U0001f600\\");
  // Invalid UTF-8: an overlong encoding, a surrogate, a number above U+10FFFF, a truncated
  // character, and a continuation byte without a start byte.
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xe4\xb8z") == "\\xe4\\xb8z");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = printable(std::string("<") + static_cast<char>(byte) + ">");
    const bool is_plain = byte >= 0x20 && byte < 0x7f;
    CHECK(text.size() == (is_plain ? 3 : 6));
    CHECK(printable(text) == text);
  }
}

TEST_CASE("nearest_name finds the name behind a slip of the fingers", "[base]") {
  const std::vector<std::string> names = {"zero",         "lr",   "min-lr", "micro-batch",
                                          "global-batch", "seed", "steps"};
  const auto [typed, meant] =
      GENERATE(table<std::string, std::string>({{"zeor", "zero"},
                                                {"zer", "zero"},
                                                {"zeroo", "zero"},
                                                {"sed", "seed"},
                                                {"stesp", "steps"},
                                                {"mcro-batch", "micro-batch"},
                                                {"globalbatch", "global-batch"},
                                                {"global", "global-batch"},
                                                {"min", "min-lr"},
                                                {"lrr", "lr"}}));
  CAPTURE(typed);
  CHECK(nearest_name(typed, names) == meant);
}

TEST_CASE("nearest_name stays silent when nothing is near", "[base]") {
  const std::vector<std::string> names = {"zero", "global-batch"};
  CHECK_FALSE(nearest_name("xyzzyplugh", names).has_value());
  CHECK_FALSE(nearest_name("zero", std::vector<std::string>{}).has_value());
}

}  // namespace shale
