#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

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
    const Utf8Start next = utf8_start(text.substr(at));
    if (next.is_broken && broken == BrokenUtf8::kRefused) {
      throw DataError(cat("'", excerpt(text), "' is not UTF-8"));
    }
    out += next.is_broken ? "\xef\xbf\xbd" : text.substr(at, next.bytes);
    at += next.bytes;
  }
  return out + '"';
}

}  // namespace shale
