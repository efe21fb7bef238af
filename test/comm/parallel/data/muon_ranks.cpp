// Matrices that come together on one rank are stepped to the bits of one rank.
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {

TEST_CASE("Muon has the same losses in every stage, with overlap or without", "[gate]") {
  const auto all = world().group();
  if (12 % all->size() != 0) return;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const auto trained = [&](const comm::DataParallelOptions& parallel) {
      comm::DataParallelOptions options = parallel;
      options.compute = compute;
      options.reproducible = all->size() != 3;
      TinyRun run({.shard = all.get()}, *all, {.parallel = options}, OptimizerKind::kMuon);
      const std::vector<float> losses = run.train(6);
      return std::pair(losses, run.state());
    };
    const auto want = trained({.stage = 0});
    CHECK(want.first.back() < want.first.front());
    for (const int stage : {1, 2, 3}) {
      for (const bool overlap : {true, false}) {
        CAPTURE(dtype_name(compute), stage, overlap);
        const auto got = trained({.stage = stage, .overlap = overlap});
        if (all->size() != 3) {
          CHECK(got.first == want.first);
          CHECK(got.second == want.second);
        }
        CHECK(got.first.back() < got.first.front());
      }
    }
  }
}

TEST_CASE("Muon has the same losses on any number of ranks, reproducibly", "[gate]") {
  const auto all = world().group();
  if (all->size() == 3) return;
  const auto groups = groups_of_first_ranks(*all);
  comm::ProcessGroup* const alone = groups[1].get();
  std::vector<float> want;
  if (alone != nullptr) {
    TinyRun run({.shard = alone}, *alone, {{.reproducible = true}}, OptimizerKind::kMuon);
    want = run.train(4);
  }
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    TinyRun run({.shard = all.get()}, *all, {{.stage = stage, .reproducible = true}},
                OptimizerKind::kMuon);
    const std::vector<float> got = run.train(4);
    if (alone != nullptr) CHECK(got == want);
  }
}

}  // namespace shale::test
