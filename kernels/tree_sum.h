#pragma once

#include <cstdint>
#include <span>

#include "shale/base/dtype.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y = inputs[0] + inputs[1] + ..., elementwise, added by one fixed binary tree: the left subtree of
// n inputs has the largest power of two below n, so that 7 inputs are ((01)(23))((45)6). The result
// is written to every output. Ranks on one node reduce in this way: each reads its slice from all
// peers and writes the sum back to all of them.
//
// Inputs of f32, bf16 or f16 (all of one dtype) are added in f32 and rounded once into outputs of
// f32, bf16 or f16. f64, i32 and i64 keep their dtype, and integers wrap. A single input is copied,
// or cast; with equal dtypes any dtype is allowed. An output may be an input; otherwise nothing may
// overlap. The bits of an element depend only on the inputs at that element. A GPU takes at most
// 128 inputs and outputs.
struct TreeSumArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  int64_t count = 0;  // elements
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  bool stream = false;  // CPU: bypass the caches, for data larger than them
};

void check_args(const TreeSumArgs& a);

inline Slot<TreeSumArgs> tree_sum{"tree_sum"};

}  // namespace shale::kernels
