#include <unordered_map>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {

const std::vector<std::string>& byte_alphabet() {
  static const std::vector<std::string> alphabet = [] {
    std::vector<std::string> characters(256);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
      tokenizer_internal::append_utf8(itself ? b : next++, characters[b]);
    }
    return characters;
  }();
  return alphabet;
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  using tokenizer_internal::Utf8Char;
  static const std::unordered_map<std::string_view, char> bytes = [] {
    std::unordered_map<std::string_view, char> map;
    for (size_t b = 0; b < 256; ++b) map[byte_alphabet()[b]] = static_cast<char>(b);
    return map;
  }();
  std::string out;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    const Utf8Char c = tokenizer_internal::decode_utf8(at, end);
    const auto it = bytes.find(std::string_view(at, c.bytes));
    if (it == bytes.end()) return {};
    out += it->second;
    at += c.bytes;
  }
  return out;
}

}  // namespace shale
