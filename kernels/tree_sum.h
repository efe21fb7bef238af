#pragma once

#include <cstdint>
#include <span>

#include "shale/base/dtype.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y = inputs[0] + inputs[1] + ..., elementwise, added by one fixed binary tree: the left part of n
// inputs has the largest power of two below n, so that 7 inputs are ((01)(23))((45)6). The result
// is written to every output. This is how ranks on one node reduce: each reads its slice from all
// peers and writes the sum back to all of them.
//
// Inputs of f32, bf16, f16 (each alike) are added in f32 and rounded once into outputs of f32, bf16
// or f16; f64, i32 and i64 stay what they are, and integers wrap. One input is copied, or cast;
// with equal dtypes any dtype. An output may be an input; otherwise nothing may overlap. The bits
// of an element depend on nothing but the inputs at that element. A GPU takes at most 128 inputs
// and outputs.
struct TreeSumArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  int64_t count = 0;  // elements
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  bool stream = false;  // on the CPU, writes past the caches: for more than they hold
};

void check_args(const TreeSumArgs& a);

inline Slot<TreeSumArgs> tree_sum{"tree_sum"};

}  // namespace shale::kernels
