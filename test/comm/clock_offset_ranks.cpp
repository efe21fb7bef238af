#include "shale/comm/hosts/clock_offset.h"

#include <chrono>
#include <cstdlib>

#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("clocks of hosts that differ are compared to within the error that is told") {
  const auto group = world().group({.timeout_s = 60});
  // Two ranks share a host; the clocks of two hosts differ by days.
  const int host = group->rank() / 2;
  const int64_t ahead_ns = host * int64_t{200'000'000'000'123};
  const auto clock = [ahead_ns] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() + ahead_ns;
  };
  const auto offset = comm::measure_clock_offset(*group, cat("host", host), clock);
  CHECK(std::abs(offset.ns - ahead_ns) <= offset.error_ns);
  CHECK(offset.error_ns < 1'000'000'000);
  if (host == 0) CHECK(offset.error_ns == 0);  // host 0 has rank 0's clock
}

}  // namespace shale::test
