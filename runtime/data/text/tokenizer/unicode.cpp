#include "shale/runtime/data/text/tokenizer/unicode.h"

#include <algorithm>
#include <map>

#include "shale/runtime/data/text/tokenizer/unicode_tables.h"

namespace shale::tokenizer_internal {

Utf8Char decode_utf8(const char* begin, const char* end) {
  const auto at = [begin](int i) { return static_cast<unsigned char>(begin[i]); };
  constexpr Utf8Char kBroken{Utf8Char::kInvalid, 1};
  const uint32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xc2 || lead > 0xf4) return kBroken;
  const int bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (end - begin < bytes) return kBroken;
  uint32_t code = lead & (0x7fU >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return kBroken;
    code = code << 6 | (at(i) & 0x3fU);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[static_cast<size_t>(bytes)] || code > 0x10ffff || is_surrogate) {
    return kBroken;
  }
  return {code, static_cast<uint32_t>(bytes)};
}

void append_utf8(uint32_t code, std::string& out) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  const auto rest = [&](int shift) { put(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
    return rest(0);
  }
  if (code < 0x10000) {
    put(0xe0 | code >> 12);
    rest(6);
    return rest(0);
  }
  put(0xf0 | code >> 18);
  rest(12);
  rest(6);
  rest(0);
}

size_t find_broken_utf8(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    if (static_cast<unsigned char>(*at) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = decode_utf8(at, end);
    if (c.code == Utf8Char::kInvalid) return static_cast<size_t>(at - text.data());
    at += c.bytes;
  }
  return text.npos;
}

Utf8Char last_utf8(std::string_view text, size_t end) {
  const char* const stop = text.data() + end;
  for (size_t bytes = 2; bytes <= std::min<size_t>(4, end); ++bytes) {
    const Utf8Char c = decode_utf8(stop - bytes, stop);
    if (c.bytes == bytes) return c;
  }
  return decode_utf8(stop - 1, stop);
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

CharTable::CharTable() {
  std::vector<CharClass> classes(0x110000);
  for (size_t run = 0; run < kClassRunsSize; ++run) {
    const uint32_t kind = kClassRuns[run] & 15;
    const uint32_t first = kClassRuns[run] >> 4;
    const uint32_t end = run + 1 < kClassRunsSize ? kClassRuns[run + 1] >> 4 : 0x110000;
    for (uint32_t code = first; code < end; ++code) {
      const bool is_small = (code - first) % 2 == 1;
      classes[code] = kind != kAlternatingCase ? static_cast<CharClass>(kind)
                      : is_small               ? CharClass::kLower
                                               : CharClass::kUpper;
    }
  }
  std::map<std::vector<CharClass>, uint16_t> numbers;
  for (size_t i = 0; i < block_.size(); ++i) {
    const auto begin = classes.begin() + static_cast<std::ptrdiff_t>(i * kBlock);
    std::vector<CharClass> block(begin, begin + kBlock);
    const auto [it, is_new] = numbers.try_emplace(block, static_cast<uint16_t>(numbers.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    block_[i] = it->second;
  }
  for (uint32_t code = 0; code < ascii_.size(); ++code) ascii_[code] = of(code);
}

}  // namespace shale::tokenizer_internal
