#include "shale/models/views/trace_svg.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

constexpr int64_t kMs = 1'000'000;

// Makes a trace with step 3 of 90 ms: two forwards and two backwards of 20 ms each; the last
// backward waits for 10 ms.
TraceRecord rank_of(int rank) {
  TraceRecord record{.rank = rank,
                     .host = "node",
                     .names = {"step 3", "forward", "backward", "comm/wait", "send", "step 4"}};
  const auto add = [&](const char* track, int64_t begin, int64_t end, uint32_t name) {
    record.tracks[track].push_back({.begin = begin * kMs, .end = end * kMs, .name = name});
  };
  add("host", 10, 100, 0);
  add("host", 10, 30, 1);
  add("host", 30, 50, 1);
  add("host", 50, 70, 2);
  add("host", 70, 90, 2);
  add("host", 80, 90, 3);
  add("host", 100, 190, 5);
  add("host", 100, 120, 1);
  add("link 0 -> 1", 20, 30, 4);
  return record;
}

}  // namespace

TEST_CASE("a step is drawn with its passes, waits and messages, and no other step", "[trace_svg]") {
  const std::vector<TraceRecord> ranks = {rank_of(0), rank_of(1)};
  const std::string svg = trace_svg(ranks, 3);
  CAPTURE(svg);
  CHECK(trace_svg(ranks, 0) == svg);
  CHECK(trace_svg(ranks, 4) != svg);
  CHECK(test::contains(svg, ">90.0 ms<"));
  CHECK(test::contains(svg, ">rank 1<"));
  // The picture shows 90 ms in 900 pixels, from x = 56 on. The rows of two ranks are 40 pixels
  // apart.
  CHECK(test::contains(svg, R"(<rect x="256.0" y="6" width="200.0" height="22" fill="#9ecae1")"));
  CHECK(test::contains(svg, R"(<rect x="656.0" y="46" width="200.0" height="22" fill="#fdae6b")"));
  CHECK(test::contains(svg, R"(<rect x="756.0" y="17" width="100.0" height="11" fill="#cb181d")"));
  CHECK(test::contains(svg, R"(<rect x="156.0" y="30" width="100.0" height="8" fill="#bcbddc")"));
  CHECK_THROWS_WITH(trace_svg(ranks, 9), Catch::Matchers::Contains("expected one of 3, 4"));
}

}  // namespace shale::models
