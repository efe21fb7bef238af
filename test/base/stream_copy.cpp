#include "shale/base/stream_copy.h"

#include <algorithm>
#include <vector>

#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("stream_copy copies these bytes and no others, at any alignment", "[base]") {
  constexpr size_t kRoom = 1024;
  std::vector<std::byte> from(kRoom);
  for (size_t i = 0; i < kRoom; ++i) from[i] = static_cast<std::byte>(i * 37 + i / 256 + 1);
  int different = 0;
  for (const size_t count : {0, 1, 15, 63, 64, 65, 127, 128, 200, 640}) {
    for (size_t to_begin = 0; to_begin <= 65; ++to_begin) {
      for (const size_t from_begin : {0, 1, 8, 63}) {
        std::vector<std::byte> to(kRoom), want(kRoom);
        std::copy_n(from.begin() + long(from_begin), count, want.begin() + long(to_begin));
        stream_copy(to.data() + to_begin, from.data() + from_begin, count);
        different += to == want ? 0 : 1;
      }
    }
  }
  CHECK(different == 0);
}

}  // namespace shale
