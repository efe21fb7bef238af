#include "shale/models/views/trace_report.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

using Slice = TraceRecord::Slice;
constexpr int64_t kMs = 1'000'000;

// Makes a trace with a step of 100 ms: 1 ms of data, 40 ms of forward, 50 ms of backward. Of
// backward, 20 ms are waits; in these, rank `late` computes.
TraceRecord rank_of(int rank, int late) {
  TraceRecord record{.rank = rank,
                     .host = "node",
                     .names = {"step 3", "forward", "gemm", "backward", "comm/wait", "data",
                               "reduce_scatter_sum", "h.0"}};
  const int64_t join = rank == late ? 90 : 70;
  std::vector<Slice>& host = record.tracks["host"];
  const auto add = [&host](int64_t begin, int64_t end, uint32_t name) {
    host.push_back({.begin = begin * kMs, .end = end * kMs, .name = name});
  };
  add(0, 100, 0);
  add(0, 1, 5);
  add(1, 41, 1);
  add(2, 40, 7);
  add(3, 39, 2);
  add(41, 91, 3);
  add(42, join, 2);
  if (rank != late) add(join, 90, 4);
  record.about = {{.flow = 5, .texts = {{"for", "h.12 gradient"}, {"group", "world"}}}};
  record.tracks["collectives: world"] = {
      {.begin = join * kMs, .end = 90 * kMs + 1, .name = 6, .about = 0}};
  return record;
}

}  // namespace

TEST_CASE("a report says where the time goes and who is late", "[trace_report]") {
  const std::vector<TraceRecord> ranks = {rank_of(0, 1), rank_of(1, 1)};
  const std::string text = trace_report(ranks);
  CAPTURE(text);
  CHECK(test::contains(text, "Steps 3 to 3 of 2 ranks on 1 host; a step takes 100 ms"));
  CHECK(test::contains(text, "data                         1.0%  1 ms"));
  CHECK(test::contains(text, "forward                     40.0%  40 ms"));
  CHECK(test::contains(text, "backward                    40.0%  40 ms"));
  CHECK(test::contains(text, "waiting for other ranks     10.0%  10 ms"));
  CHECK(test::contains(text, "the rest                     9.0%  9 ms"));
  // Kernels take 36 + 28 + 36 + 48 ms out of 200 ms.
  CHECK(test::contains(text, "Kernels take 74.0% of a step"));
  CHECK(test::contains(text, "of that gemm 100.0%"));
  CHECK(test::contains(text, "in backward 100.0%"));
  CHECK(test::contains(text, "reduce_scatter_sum for h.* gradient 100.0%"));
  CHECK(test::contains(text,
                       "One rank is late: rank 1 on node, which is the last to join 1 of 1 "
                       "collectives; the other ranks wait 20 ms (20.0%) of a step for it"));
}

TEST_CASE("ranks that come together are not called late", "[trace_report]") {
  const std::vector<TraceRecord> ranks = {rank_of(0, -1), rank_of(1, -1)};
  CHECK(test::contains(trace_report(ranks), "No rank is late"));
  CHECK(test::contains(trace_report(std::vector{rank_of(0, 0)}), "of 1 rank on 1 host"));
}

TEST_CASE("a trace without a whole step is an error", "[trace_report]") {
  CHECK_THROWS_AS(trace_report(std::vector{TraceRecord{}}), DataError);
}

}  // namespace shale::models
