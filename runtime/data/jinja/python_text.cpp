#include "shale/runtime/data/jinja/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::jinja {
namespace {

using tokenizer_internal::append_utf8;
using tokenizer_internal::CharTable;
using tokenizer_internal::last_utf8;
using tokenizer_internal::Utf8Char;

Utf8Char first_utf8(std::string_view text) {
  return tokenizer_internal::decode_utf8(text.data(), text.data() + text.size());
}

// Returns true if Unicode gives the character a case. This includes letters and some characters
// used as letters.
bool is_cased(uint32_t code) {
  using tokenizer_internal::CharClass;
  using tokenizer_internal::set_of;
  if (code == 0xaa || code == 0xba || (code >= 0x2b0 && code <= 0x2b8) || code == 0x345)
    return true;
  if ((code >= 0x2160 && code <= 0x217f) || (code >= 0x24b6 && code <= 0x24e9)) return true;
  return (CharTable::get().of(code) & (set_of(CharClass::kUpper) | set_of(CharClass::kLower))) != 0;
}

bool is_one_of(uint32_t code, std::string_view ascii) {
  return code < 0x80 && ascii.find(static_cast<char>(code)) != ascii.npos;
}

// Returns the result of Python's str.isprintable for a character, except that unassigned code
// points count as printable.
bool is_printable(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  // Control, format and private-use characters.
  static constexpr Range kHidden[] = {
      {0x0, 0x1f},        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},
      {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
      {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},   {0x202a, 0x202e},
      {0x2060, 0x206f},   {0xe000, 0xf8ff},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},
      {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
      {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff}, {0xf0000, 0x10ffff}};
  if (code == ' ') return true;
  return !is_space(code) && std::ranges::none_of(kHidden, [code](const Range& range) {
    return range.first <= code && code <= range.last;
  });
}

std::string hexadecimal(const char* format, uint32_t code) {
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), format, code);
  return digits.data();
}

}  // namespace

bool is_space(uint32_t code) {
  if (code >= 0x1c && code <= 0x1f) return true;
  return (CharTable::get().of(code) & tokenizer_internal::kSpaces) != 0;
}

std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
  const auto goes = [characters](std::string_view one, uint32_t code) {
    return characters ? characters->find(one) != characters->npos : is_space(code);
  };
  while (side != Side::kRight && !text.empty()) {
    const Utf8Char c = first_utf8(text);
    if (!goes(text.substr(0, c.bytes), c.code)) break;
    text.remove_prefix(c.bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    const Utf8Char c = last_utf8(text, text.size());
    if (!goes(text.substr(text.size() - c.bytes), c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? text.npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t cuts) {
  std::vector<std::string_view> parts;
  if (separator) {
    for (; cuts != 0; --cuts) {
      const size_t end = find_text(text, *separator);
      if (end == text.npos) break;
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end + separator->size());
    }
    parts.push_back(text);
    return parts;
  }
  for (text = strip(text, Side::kLeft); !text.empty(); text = strip(text, Side::kLeft)) {
    size_t end = cuts == 0 ? text.size() : 0;
    while (end < text.size()) {
      const Utf8Char c = first_utf8(text.substr(end));
      if (is_space(c.code)) break;
      end += c.bytes;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
    if (cuts > 0) --cuts;
  }
  return parts;
}

std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator,
                                               int64_t cuts) {
  std::vector<std::string_view> parts;
  for (; cuts != 0; --cuts) {
    const size_t at = text.rfind(separator);
    if (at == text.npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = first_utf8(text.substr(at));
    const size_t end = at;
    at += c.bytes;
    const bool ends_line = (c.code >= 0xa && c.code <= 0xd) || (c.code >= 0x1c && c.code <= 0x1e) ||
                           c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029;
    if (!ends_line) continue;
    lines.push_back(text.substr(begin, end - begin));
    if (c.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

int64_t length(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

size_t offset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((text[at] & 0xc0) != 0x80 && index-- == 0) break;
  }
  return at;
}

std::optional<std::string> with_case(std::string_view text, Case to) {
  std::string out;
  bool begins = true;  // true: the character begins a word or the text
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = first_utf8(text.substr(at));
    if (c.code >= 0x80 && is_cased(c.code)) return std::nullopt;
    const bool is_capital = to == Case::kUpper || (to != Case::kLower && begins);
    if (c.code >= 0x80) {
      out += text.substr(at, c.bytes);
    } else {
      const int code = static_cast<int>(c.code);
      out += static_cast<char>(is_capital ? std::toupper(code) : std::tolower(code));
    }
    at += c.bytes;
    if (to == Case::kTitle) {
      begins = !is_cased(c.code);
    } else {
      begins = to == Case::kTitleWords && (is_space(c.code) || is_one_of(c.code, "-({[<"));
    }
  }
  return out;
}

std::string repr(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = first_utf8(text.substr(at));
    const std::string_view one = text.substr(at, c.bytes);
    at += c.bytes;
    if (one[0] == quote || one[0] == '\\') {
      out += {'\\', one[0]};
    } else if (is_printable(c.code)) {
      out += one;
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else {
      out += hexadecimal(c.code < 0x100     ? "\\x%02x"
                         : c.code < 0x10000 ? "\\u%04x"
                                            : "\\U%08x",
                         c.code);
    }
  }
  return out + quote;
}

std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Writes the shortest decimal that converts back to the same value: "d.ddde-dd".
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), end.ptr);
  const int exponent = std::atoi(scientific.substr(scientific.find('e') + 1).data());
  if (value != 0 && (exponent < -4 || exponent >= 16)) return std::string(scientific);
  std::array<char, 64> plain{};
  const auto stop = std::to_chars(plain.begin(), plain.end(), value, std::chars_format::fixed);
  std::string out(plain.data(), stop.ptr);
  return out.find('.') == out.npos ? out + ".0" : out;
}

std::string ascii_json(std::string_view text) {
  std::string out;
  const std::string quoted = json_quote(text);
  for (size_t at = 0; at < quoted.size();) {
    const Utf8Char c = first_utf8(std::string_view(quoted).substr(at));
    at += c.bytes;
    if (c.code < 0x7f) {
      out += static_cast<char>(c.code);
    } else if (c.code < 0x10000) {
      out += hexadecimal("\\u%04x", c.code);
    } else {
      out += hexadecimal("\\u%04x", 0xd800 + ((c.code - 0x10000) >> 10));
      out += hexadecimal("\\u%04x", 0xdc00 + (c.code & 0x3ff));
    }
  }
  return out;
}

}  // namespace shale::jinja
