#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shale {

// Numbers as people type them. Each function reads all of `text` (no blanks, nothing behind the
// number) and does not depend on the locale. Nothing comes back when `text` is not such a number,
// when it does not fit, and for inf and nan.

// Decimal. Fractions and exponents are fine as long as the value is an integer: "1e6", "1.5e3".
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_real(std::string_view text);

// Bytes: an integer as above, or a number with a unit: B, KiB, MiB, GiB, TiB (powers of 1024) or
// kB, MB, GB, TB (powers of 1000), in any case. Rounded to whole bytes; never negative.
std::optional<int64_t> parse_size(std::string_view text);

// The shortest decimal that reads back as the same float or double: "0.0003", "6e-05".
std::string format_real(float value);
std::string format_real(double value);

// What `text`, which is not empty, begins with: a character of UTF-8 (table 3-7 of the Unicode
// standard), or bytes that are none, of which so many begin a character at most.
struct Utf8Start {
  size_t bytes = 1;
  bool is_broken = false;
};
Utf8Start utf8_start(std::string_view text);

// `text` as a line for people may have it: control characters and bytes that are not UTF-8 are
// spelled "\x1b", so that input can neither break the line nor drive the terminal. Those in `kept`,
// of ASCII, stay. The same again changes nothing.
std::string printable(std::string_view text, std::string_view kept = {});

// The same, or its start and "..." if it is long: what a message quotes of input. The result has at
// most `longest` bytes, which are 3 or more.
std::string excerpt(std::string_view text, size_t longest = 100);

// Whether a path that a person gives can be meant so: it is not empty ("$FOLDER" without a FOLDER),
// and has no control characters.
bool names_a_path(std::string_view text);

// The member of `names` that somebody who typed `text` most likely meant: it starts with `text`, or
// it is a few typing slips away (a slip: a letter too many, missing, wrong, or two swapped).
std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names);

}  // namespace shale
