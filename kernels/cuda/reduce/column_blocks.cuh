#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Target of a sum over rows. Sums over rows are computed per block of rows, then over the blocks in
// a fixed order, without atomics, so the bits are the same in every run.
struct ColumnSumTarget {
  void* out = nullptr;        // [cols]; null: the sum is not requested
  DType dtype = DType::kF32;  // dtype of out: f32 or bf16
  bool accumulate = false;    // true: out +=, false: out =
};

inline ColumnSumTarget column_sum_target(const View& out, bool accumulate) {
  return {.out = out.data, .dtype = out.dtype, .accumulate = accumulate};
}

// Stores out[c] (+)= sum, rounded once.
__device__ __forceinline__ void store_column_sum(const ColumnSumTarget& target, int64_t c,
                                                 float sum) {
  if (target.dtype == DType::kBF16) {
    auto* out = static_cast<bf16*>(target.out) + c;
    *out = from_float<bf16>(target.accumulate ? to_float(*out) + sum : sum);
  } else {
    auto* out = static_cast<float*>(target.out) + c;
    *out = target.accumulate ? *out + sum : sum;
  }
}

struct CombineArgs {
  const float* partial = nullptr;  // [blocks, vectors, cols]: each block's sums of its rows
  int64_t blocks = 0;
  int vectors = 1;  // sums per column in a block, 1 or 2
  int64_t cols = 0;
  ColumnSumTarget targets[2] = {};
};

void combine_blocks(const Exec& exec, const CombineArgs& args);

}  // namespace shale::kernels::SHALE_BACKEND
