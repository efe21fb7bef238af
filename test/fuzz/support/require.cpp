#include <cstdio>
#include <cstdlib>

#include "shale/test/fuzz/fuzz.h"

namespace shale::fuzz {

void require(bool holds, std::string_view claim) {
  if (holds) return;
  std::fprintf(stderr, "not true: %.*s\n", static_cast<int>(claim.size()), claim.data());
  std::abort();
}

void require_clear(std::string_view message) {
  require(!message.empty() && message.size() <= 4000, "a message has 1 to 4000 bytes");
  for (const char c : message) {
    require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a message is one plain line");
  }
}

}  // namespace shale::fuzz
