#include "shale/bench/support/mixture_twin.h"

#include "shale/test/support/catch.h"

namespace shale::bench {

TEST_CASE("a mixture of experts is timed beside its dense twin", "[bench]") {
  comm::World world(0, nullptr);
  const TrainOptions base{.layers = 1, .seq_len = 8, .micro_batch = 1, .threads = 2};
  const TwinTimes times = measure_twins(base, 2, 1, world);
  for (const Samples* samples : {&times.mixture, &times.dense, &times.mixture_optimizer,
                                 &times.dense_optimizer}) {
    REQUIRE(samples->seconds.size() == 2);
    CHECK(samples->min() > 0);
  }
  CHECK(times.ratio() > 0);
  const std::string table = twin_table(times);
  CHECK(table.find("wanted: at most 1.15") != std::string::npos);
  CHECK(twin_row(times, base)["ratio"] == times.ratio());
}

}  // namespace shale::bench
