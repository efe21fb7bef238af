#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shale {

// Parsers for numbers that people type. Each reads the whole `text`, without blanks or anything
// after the number, and ignores the locale. Returns nullopt if `text` is not such a number, if it
// does not fit, and for inf and nan.

// Decimal integer. Fractions and exponents are allowed if the value is an integer: "1e6", "1.5e3".
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_real(std::string_view text);

// Size in bytes: an integer as in parse_int(), or a number with a unit: B, KiB, MiB, GiB, TiB
// (powers of 1024) or kB, MB, GB, TB (powers of 1000), in any case. Rounded to whole bytes; never
// negative.
std::optional<int64_t> parse_size(std::string_view text);

// Shortest decimal text that reads back as the same float or double: "0.0003", "6e-05".
std::string format_real(float value);
std::string format_real(double value);

// First UTF-8 character of `text`, which must not be empty (table 3-7 of the Unicode standard).
// is_broken: `text` does not begin with a valid character; `bytes` then counts the invalid bytes,
// which are the longest prefix of a valid character, or one byte.
struct Utf8Start {
  size_t bytes = 1;
  bool is_broken = false;
};
Utf8Start utf8_start(std::string_view text);

// Makes `text` safe for a line of output. Escapes control characters and bytes that are not UTF-8
// as "\x1b", so that input can neither break the line nor control the terminal. Does not escape
// ASCII characters in `kept`. Applying it twice gives the same text.
std::string printable(std::string_view text, std::string_view kept = {});

// Returns printable(text). If that is long, returns a prefix of it and "...". Use it for input that
// a message quotes. The result has at most `longest` bytes; `longest` must be at least 3.
std::string excerpt(std::string_view text, size_t longest = 100);

// Returns whether `text` can be a path. It can if it is not empty (an unset shell variable) and has
// no control characters.
bool names_a_path(std::string_view text);

// Returns the member of `names` that `text` most likely stands for: one that starts with `text`, or
// one that is a few typing errors away (an extra, missing or wrong letter, or two swapped letters).
std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names);

}  // namespace shale
