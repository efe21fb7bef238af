#include "shale/kernels/cuda/gemm/tile_shares.h"

#include "shale/kernels/gemm_plan.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

__global__ void __launch_bounds__(BlockCounters::kSlabs) clear_counters_kernel(uint32_t* counters) {
  await_previous_grid();
  counters[threadIdx.x] = 0;
}

}  // namespace

SharesRoom::SharesRoom(const GemmProblem& problem, const GemmPlan& plan) : shares_(plan.shares) {
  if (shares_ == 0) return;
  tiles_ = static_cast<int>(tiles_of(problem, plan.tile, plan.cluster, plan.sms).shared);
  parts_ = int64_t{shares_ + tiles_} * plan.cluster * rows_of(plan.tile) * cols_of(plan.tile) *
           int64_t{sizeof(float)};
  counters_ = sizeof(BlockCounters::written);  // enough for 131 tiles of two slabs
}

TileShares SharesRoom::in(const Exec& exec, char* memory) const {
  if (shares_ == 0) return {};
  TileShares shares = {
      .count = shares_, .tiles = tiles_, .parts = reinterpret_cast<float*>(memory)};
  if (exec.counters != nullptr) {
    shares.written = exec.counters->written;
  } else {
    shares.written = reinterpret_cast<uint32_t*>(memory + parts_);
    simt::launch(clear_counters_kernel, {.grid = 1, .block = BlockCounters::kSlabs}, exec,
                 shares.written);
  }
  return shares;
}

}  // namespace shale::kernels::SHALE_BACKEND
