#include "shale/comm/fingerprint.h"

#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

comm::Fingerprint call_of(int64_t count, std::string tag, uint64_t sequence = 3) {
  static float value = 0;
  const View view = make_view(&value, {count});
  return comm::fingerprint({.op = comm::CollectiveOp::kAllReduceSum,
                            .in = view,
                            .out = view,
                            .root = 0,
                            .tag = std::move(tag)},
                           sequence);
}

}  // namespace

TEST_CASE("ranks that agree have nothing to report") {
  CHECK(comm::disagreement({call_of(4, "a"), call_of(4, "a")}, {0, 1}).empty());
}

TEST_CASE("a disagreement names ranks and calls") {
  const auto text = comm::disagreement(
      {call_of(4, "a"), call_of(4, "a"), call_of(5, "a"), call_of(4, "a")}, {8, 9, 10, 12});
  CHECK(text ==
        "ranks disagree: ranks 8,9,12 call all_reduce_sum 3 of fp32[4] for 'a'; "
        "rank 10 calls all_reduce_sum 3 of fp32[5] for 'a'");
}

TEST_CASE("long tags count as a whole and are shown by their end") {
  const std::string start(100, 'x');
  const auto a = call_of(4, start + ".end"), b = call_of(4, "y" + start + ".end");
  CHECK_FALSE(a == b);
  CHECK(contains(comm::describe(a), ".end'"));
}

TEST_CASE("a collective out of step is a disagreement") {
  CHECK(contains(comm::disagreement({call_of(4, "", 3), call_of(4, "", 4)}, {0, 1}),
                 "rank 1 calls all_reduce_sum 4"));
}

TEST_CASE("rank lists join neighbours") {
  CHECK(comm::rank_list({3}) == "rank 3");
  CHECK(comm::rank_list({2, 1}) == "ranks 1,2");
  CHECK(comm::rank_list({0, 1, 2, 5, 7, 8, 9}) == "ranks 0-2,5,7-9");
}

}  // namespace shale::test
