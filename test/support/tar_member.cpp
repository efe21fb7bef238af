#include "shale/test/support/tar_member.h"

#include <cstdint>
#include <cstdio>

namespace shale::test {

std::string tar_member(const std::string& name, const std::string& content, char type,
                       const std::string& prefix) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  char size[12];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  put(0, name);
  put(124, size);
  header[156] = type;
  put(257, std::string("ustar\0"
                       "00",
                       8));
  put(345, prefix);
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += uint8_t(c);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  put(148, digits);
  std::string body = content;
  body.resize((content.size() + 511) / 512 * 512, '\0');
  return header + body;
}

}  // namespace shale::test
