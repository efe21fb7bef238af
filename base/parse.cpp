#include "shale/base/parse.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace shale {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The number digits * 10^exponent. A double would lose integers above 2^53.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

bool read_exponent(std::string_view text, int64_t& exponent) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, exponent);
  // Bound of exponents, far above sensible ones. It prevents overflow in their arithmetic.
  constexpr int64_t kBound = 1'000'000;
  return error == std::errc{} && stop == end && -kBound < exponent && exponent < kBound;
}

std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal number;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    number.negative = text[0] == '-';
    text.remove_prefix(1);
  }
  bool fraction = false;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if (is_digit(text[i])) {
      number.digits += text[i];
      number.exponent -= fraction ? 1 : 0;
    } else if (text[i] == '.' && !fraction) {
      fraction = true;
    } else {
      break;
    }
  }
  if (number.digits.empty()) return std::nullopt;
  if (i == text.size()) return number;
  int64_t exponent = 0;
  if (lower(text[i]) != 'e' || !read_exponent(text.substr(i + 1), exponent)) return std::nullopt;
  number.exponent += exponent;
  return number;
}

// Bytes of a unit: 1 for an empty one, nullopt for an unknown one.
std::optional<double> unit_bytes(std::string_view unit) {
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{{"", 1},
                                                                                  {"b", 1},
                                                                                  {"kib", 0x1p10},
                                                                                  {"mib", 0x1p20},
                                                                                  {"gib", 0x1p30},
                                                                                  {"tib", 0x1p40},
                                                                                  {"kb", 1e3},
                                                                                  {"mb", 1e6},
                                                                                  {"gb", 1e9},
                                                                                  {"tb", 1e12}}};
  std::string name(unit);
  std::transform(name.begin(), name.end(), name.begin(), lower);
  for (const auto& [known, bytes] : kUnits) {
    if (name == known) return bytes;
  }
  return std::nullopt;
}

template <typename T>
std::string shortest(T value) {
  std::array<char, 48> buffer{};
  // std::to_chars without a precision gives the shortest text too, but prefers 3e-04 to 0.0003.
  for (int precision = 6; precision <= std::numeric_limits<T>::max_digits10; ++precision) {
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                            std::chars_format::general, precision);
    T back = 0;
    const auto read = std::from_chars(buffer.data(), end, back);
    if (error == std::errc{} && read.ec == std::errc{} && back == value) {
      return {buffer.data(), end};
    }
  }
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// Appends the first character of `text`, escaped if it is not printable. Returns the number of
// bytes read.
size_t append_printable(std::string_view text, std::string& out) {
  const Utf8Start start = utf8_start(text);
  const std::string_view all = text.substr(0, start.bytes);
  const auto first = static_cast<unsigned char>(all.front());
  const auto last = static_cast<unsigned char>(all.back());
  const bool is_ascii_control = first < 0x20 || first == 0x7f;
  const bool is_latin_control = first == 0xc2 && last < 0xa0;  // U+0080 to U+009F
  if (!start.is_broken && !is_ascii_control && !is_latin_control) {
    out += all;
    return all.size();
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : start.is_broken ? all : all.substr(all.size() - 1)) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
  }
  return all.size();
}

// Edit distance with swaps of neighbours (optimal string alignment).
size_t typing_slips(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t wrong = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + wrong});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text) {
  auto number = read_decimal(text);
  if (!number) return std::nullopt;
  std::string& digits = number->digits;
  for (; number->exponent < 0; ++number->exponent) {
    if (digits.empty()) break;                      // all digits were zeros
    if (digits.back() != '0') return std::nullopt;  // a fractional part is left
    digits.pop_back();
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  // No int64_t has more than 19 digits, so a larger exponent cannot fit.
  if (number->exponent > 19) return std::nullopt;
  digits.append(static_cast<size_t>(number->exponent), '0');
  if (number->negative) digits.insert(digits.begin(), '-');
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  if (!read_decimal(text)) return std::nullopt;  // from_chars also takes "inf" and "nan"
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_size(std::string_view text) {
  const size_t last = text.find_last_of("0123456789.");
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view amount = text.substr(0, last + 1);
  const std::string_view unit = text.substr(last + 1);
  if (unit.empty()) {
    const auto bytes = parse_int(amount);
    return bytes && *bytes >= 0 ? bytes : std::nullopt;
  }
  const auto number = parse_real(amount);
  const auto factor = unit_bytes(unit);
  if (!number || !factor || *number < 0) return std::nullopt;
  const double bytes = std::round(*number * *factor);
  if (bytes >= 0x1p63) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string format_real(float value) {
  return shortest(value);
}
std::string format_real(double value) {
  return shortest(value);
}

Utf8Start utf8_start(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {};
  if (lead < 0xc2 || lead > 0xf4) return {.is_broken = true};
  const size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < bytes; ++i) {
    if (i == text.size() || byte(i) < least || byte(i) > most) return {i, true};
    least = 0x80;
    most = 0xbf;
  }
  return {bytes, false};
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t bytes = 1;
    if (kept.find(text[0]) != kept.npos) {
      out += text[0];
    } else {
      bytes = append_printable(text, out);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string excerpt(std::string_view text, size_t longest) {
  std::string out;
  size_t cut = 0;  // length of `out` before "...", if `text` is too long
  while (!text.empty()) {
    text.remove_prefix(append_printable(text, out));
    if (out.size() > longest) return out.substr(0, cut) + "...";
    if (out.size() + 3 <= longest) cut = out.size();
  }
  return out;
}

bool names_a_path(std::string_view text) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  return !text.empty() && std::none_of(text.begin(), text.end(), is_control);
}

std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names) {
  const std::string* nearest = nullptr;
  size_t fewest = std::max<size_t>(2, text.size() / 2) + 1;  // more errors would mislead
  for (const std::string& name : names) {
    if (text.size() >= 2 && name.starts_with(text)) return name;
    // The edit distance is at least the difference in length, which is cheap to compute for long
    // texts.
    const auto [shorter, longer] = std::minmax({name.size(), text.size()});
    if (longer - shorter >= fewest) continue;
    const size_t slips = typing_slips(text, name);
    if (slips < fewest) {
      fewest = slips;
      nearest = &name;
    }
  }
  return nearest == nullptr ? std::nullopt : std::optional(*nearest);
}

}  // namespace shale
