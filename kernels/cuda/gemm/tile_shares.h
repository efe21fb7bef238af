#pragma once

#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

// The memory that blocks share tiles through (gemm90_shares.cuh), a part of a product's workspace.
class SharesRoom {
 public:
  SharesRoom(const GemmProblem& problem, GemmTile tile, int cluster, int shares);
  int64_t bytes() const { return parts_ + counters_; }
  // What a kernel gets of it. Where exec has no counters, a launch before clears some of this
  // memory.
  TileShares in(const Exec& exec, char* memory) const;

 private:
  int shares_, tiles_ = 0;
  int64_t parts_ = 0, counters_ = 0;
};

}  // namespace shale::kernels::SHALE_BACKEND
