#include "shale/comm/hosts/heartbeats.h"

#include "shale/test/support/catch.h"

namespace shale::comm {

TEST_CASE("waits take longer until the start is over") {
  Heartbeats signs;
  CHECK(signs.limit(4) == 4);
  signs.set_starting(60);
  CHECK(signs.limit(4) == 60);
  CHECK(signs.limit(100) == 100);
  CHECK(signs.limit(0) == 0);  // 0 is "no limit", also during the start
  signs.set_starting(0);
  CHECK(signs.limit(4) == 0);
  signs.set_started();
  CHECK(signs.limit(4) == 4);
}

}  // namespace shale::comm
