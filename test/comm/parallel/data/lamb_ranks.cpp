// Tests LAMB, which needs norms of whole parameters, with parameters sharded over ranks.
#include "shale/runtime/optim/lamb.h"

#include <bit>

#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

// Returns the end of a run after five steps.
RunEnd trained(comm::ProcessGroup& group, const comm::DataParallelOptions& options, DType compute) {
  RunLayout layout{.parallel = options};
  layout.parallel.compute = compute;
  layout.parallel.reproducible = true;
  TinyRun run({.shard = &group}, group, layout, OptimizerKind::kLamb);
  return run.end_after(5);
}

}  // namespace

TEST_CASE("LAMB has the same bits in every stage and on any number of ranks", "[gate]") {
  const auto all = world().group();
  if (!std::has_single_bit(unsigned(all->size()))) return;
  const auto groups = groups_of_first_ranks(*all);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const RunEnd want = trained(*all, {}, compute);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(dtype_name(compute), stage);
      CHECK(trained(*all, {.stage = stage}, compute) == want);
    }
    CHECK(trained(*all, {.persist_below = 1000, .stage = 3}, compute) == want);
    if (all->rank() == 0) CHECK(trained(*groups[1], {}, compute).losses == want.losses);
  }
}

TEST_CASE("LAMB goes on from a checkpoint of other ranks and stages with the same bits", "[gate]") {
  check_resumes(OptimizerKind::kLamb, {{{.stage = 3}}, {{.stage = 0}}});
}

}  // namespace shale::test
