#include "shale/bench/support/timing.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::bench {

TEST_CASE("the median is the middle run, or the mean of the middle two", "[bench]") {
  CHECK(Samples{{3, 1, 2}}.median() == 2);
  CHECK(Samples{{4, 1, 3, 2}}.median() == 2.5);
  CHECK(Samples{{7}}.median() == 7);
  CHECK(Samples{}.median() == 0);
}

TEST_CASE("minimum and sum are over all runs", "[bench]") {
  const Samples samples{{3, 1, 2}};
  CHECK(samples.min() == 1);
  CHECK(samples.sum() == 6);
  CHECK(Samples{}.min() == 0);
}

TEST_CASE("a paired ratio is not moved by a disturbance that hits both sides", "[bench]") {
  // `a` always takes half the time of `b`; during the third pair the machine was busy and ten times
  // slower.
  CHECK(paired_ratio(Samples{{1, 2, 10}}, Samples{{2, 4, 20}}) == 0.5);
  CHECK_THROWS_AS(paired_ratio(Samples{{1}}, Samples{{1, 2}}), InternalError);
}

TEST_CASE("processor time of a busy thread grows", "[bench]") {
  const double before = process_cpu_seconds();
  const Clock::time_point start = Clock::now();
  volatile double sink = 0;
  // Spins until the CPU time has grown, but at most a minute.
  while (process_cpu_seconds() <= before && seconds_since(start) < 60) sink = sink + 1;
  CHECK(process_cpu_seconds() > before);
}

}  // namespace shale::bench
