#pragma once

#include "kernels/simt/backend.h"
#include "runtime/base/exec.h"

namespace shale::kernels::SHALE_BACKEND {

// Sums over rows are made per block of rows, then over the blocks in a fixed order: no atomics, the
// same bits on every run.
struct ColumnSumTarget {
  float* out = nullptr;     // [cols]; null: not wanted
  bool accumulate = false;  // out += instead of out =
};

struct CombineArgs {
  const float* partial = nullptr;  // [blocks, vectors, cols]
  int64_t blocks = 0;
  int vectors = 1;  // sums that a block has of each column, 1 or 2
  int64_t cols = 0;
  ColumnSumTarget targets[2] = {};
};

void combine_blocks(const Exec& exec, const CombineArgs& args);

}  // namespace shale::kernels::SHALE_BACKEND
