#include "shale/models/training/step_exchange.h"

#include "shale/comm/ordered_sum.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("the end of a step gives all ranks the same sum, times and requests to stop") {
  const auto group = world().group({.timeout_s = 60});
  const int rank = group->rank(), last = group->size() - 1;
  // Sums that depend on their order.
  const std::vector<double> losses = {1e16 * (rank + 1), 1.0, -1e16 * (rank + 1)};
  const auto news =
      models::exchange_step(*group, {.losses = losses, .busy_s = 0.5 + rank, .stop = rank == last});
  CHECK(news.loss_sum == comm::ordered_sum(*group, losses));
  REQUIRE(news.busy_s.size() == static_cast<size_t>(group->size()));
  for (int r = 0; r <= last; ++r) CHECK(news.busy_s[static_cast<size_t>(r)] == 0.5 + r);
  CHECK(news.ranks_to_stop == std::vector<int>{last});
  CHECK(models::exchange_step(*group, {.losses = losses}).ranks_to_stop.empty());
}

}  // namespace shale::test
