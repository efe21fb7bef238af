#pragma once

#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Workspace through which blocks share tiles (gemm90_shares.cuh).
class SharesRoom {
 public:
  SharesRoom(const GemmProblem& problem, const GemmPlan& plan);
  int64_t bytes() const { return parts_ + counters_; }
  // Returns the kernel's arguments. Without exec.counters, it first queues a launch that clears the
  // counters in this memory.
  TileShares in(const Exec& exec, char* memory) const;

 private:
  int shares_, tiles_ = 0;
  int64_t parts_ = 0, counters_ = 0;
};

}  // namespace shale::kernels::SHALE_BACKEND
