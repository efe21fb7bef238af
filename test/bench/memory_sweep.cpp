#include "shale/bench/support/memory_sweep.h"

#include <algorithm>
#include <map>
#include <set>

#include "shale/test/support/catch.h"

namespace shale::bench {

TEST_CASE("the memory table has every combination once, all with the loss of their precision",
          "[bench]") {
  comm::World world(0, nullptr);
  const TrainOptions base{
      .model = "nano", .layers = 1, .seq_len = 32, .micro_batch = 2, .threads = 1};
  const std::vector<MemoryCase> cases = memory_sweep(base, world);
  // Two precisions and three recompute levels. ZeRO stages 0 to 2 have four kinds of offload each,
  // stage 3 has five.
  REQUIRE(cases.size() == 2 * 3 * (3 * 4 + 5));
  std::map<DType, std::set<float>> losses;
  for (const MemoryCase& one : cases) losses[one.options.dtype].insert(one.loss);
  CHECK(losses[DType::kF32].size() == 1);
  CHECK(losses[DType::kBF16].size() == 1);

  const auto uses_host = [](const MemoryCase& one) {
    return one.options.offload != models::OffloadKind::kNone || one.options.offload_activations;
  };
  for (const MemoryCase& one : cases) CHECK((one.host_peak > 4096) == uses_host(one));
  const auto least = std::min_element(
      cases.begin(), cases.end(),
      [](const MemoryCase& a, const MemoryCase& b) { return a.device_peak < b.device_peak; });
  CHECK(uses_host(*least));  // A single rank cannot shard, so only offload saves memory.
  CHECK(least->device_peak * 2 < cases.front().device_peak);

  const std::string table = memory_sweep_table(cases);
  CHECK(std::count(table.begin(), table.end(), '\n') >= std::ptrdiff_t(cases.size()));
  CHECK(memory_sweep_rows(cases, 1).size() == cases.size());
}

}  // namespace shale::bench
