#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

struct Character {
  size_t bytes = 1;
  bool is_broken = false;  // so many bytes, which one U+FFFD replaces, begin a character at most
};

// What `text` begins with: table 3-7 of the Unicode standard.
Character first_character(std::string_view text) {
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

void append_escaped(char c, std::string& out) {
  switch (c) {
    case '"':
    case '\\': out += {'\\', c}; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\u00";
  out += kDigits[static_cast<size_t>(c / 16)];
  out += kDigits[static_cast<size_t>(c % 16)];
}

}  // namespace

std::string json_quote(std::string_view text, BrokenUtf8 broken) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c >= 0 && (c < 0x20 || c == '"' || c == '\\')) {
      append_escaped(c, out);
      ++at;
      continue;
    }
    const Character next = first_character(text.substr(at));
    if (next.is_broken && broken == BrokenUtf8::kRefused) {
      throw DataError(cat("'", excerpt(text), "' is not UTF-8"));
    }
    out += next.is_broken ? "\xef\xbf\xbd" : text.substr(at, next.bytes);
    at += next.bytes;
  }
  return out + '"';
}

}  // namespace shale
