// Tests LAMB, which needs norms of whole parameters, with parameters sharded over ranks.
#include "shale/runtime/optim/lamb.h"

#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

// Result of a run after five steps.
struct End {
  std::vector<float> losses;
  std::map<std::string, std::string> state;
  friend bool operator==(const End&, const End&) = default;
};

End trained(comm::ProcessGroup& group, const comm::DataParallelOptions& options, DType compute) {
  RunLayout layout{.parallel = options};
  layout.parallel.compute = compute;
  layout.parallel.reproducible = true;
  TinyRun run({.shard = &group}, group, layout, OptimizerKind::kLamb);
  const std::vector<float> losses = run.train(5);
  return {losses, run.state()};
}

}  // namespace

TEST_CASE("LAMB has the same bits in every stage and on any number of ranks", "[gate]") {
  const auto all = world().group();
  if (!is_power_of_two(all->size())) return;
  const auto groups = groups_of_first_ranks(*all);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const End want = trained(*all, {}, compute);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(dtype_name(compute), stage);
      CHECK(trained(*all, {.stage = stage}, compute) == want);
    }
    CHECK(trained(*all, {.persist_below = 1000, .stage = 3}, compute) == want);
    if (all->rank() == 0) CHECK(trained(*groups[1], {}, compute).losses == want.losses);
  }
}

TEST_CASE("LAMB goes on from a checkpoint of other ranks and stages with the same bits", "[gate]") {
  const auto all = world().group();
  if (!is_power_of_two(all->size())) return;
  const SharedDir dir(*all);
  const auto groups = groups_of_first_ranks(*all);
  TinyRun whole({.shard = all.get()}, *all, {{.stage = 2, .reproducible = true}},
                OptimizerKind::kLamb);
  whole.train(3);
  whole.save(dir.path());
  const std::vector<float> want = whole.train(3);
  const auto resumed = [&](comm::ProcessGroup& group, int stage) {
    TinyRun run({.shard = &group}, group, {{.stage = stage, .reproducible = true}},
                OptimizerKind::kLamb);
    run.load(dir / "step_00000003");
    CHECK(run.train(3) == want);
  };
  resumed(*all, 3);
  resumed(*all, 0);
  if (all->rank() == 0) resumed(*groups[1], 1);
}

}  // namespace shale::test
