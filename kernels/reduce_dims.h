#pragma once

#include <array>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

enum class ReduceOp : uint8_t {
  kSum,
  kMax,     // a NaN is larger than all numbers
  kMin,     // a NaN is smaller than all numbers
  kArgMax,  // index of the first maximum along the one reduced dimension
};

// y = scale * op of x over the dimensions in which y has size 1. Computed in f32, in an order that
// depends only on shapes and strides, rounded once. The sum of no elements is 0; other ops throw
// ShapeError.
struct ReduceDimsArgs {
  View x;  // f32, bf16 or f16, any strides
  View y;  // same rank as x, sizes those of x or 1, contiguous; f32, bf16 or f16, for kArgMax i32
  ReduceOp op = ReduceOp::kSum;
  float scale = 1;  // kSum only
};

void check_args(const ReduceDimsArgs& a);

inline Slot<ReduceDimsArgs> reduce_dims{"reduce_dims"};

// Dimensions of an iteration over a view, outermost first, merged where possible.
struct Walk {
  int count = 0;
  std::array<int64_t, kMaxDims> size{};
  std::array<int64_t, kMaxDims> stride{};  // in elements

  void add(int64_t dim_size, int64_t dim_stride);
  int64_t steps() const;
};

// One iteration over the elements of y, and one over the elements of x that are reduced to an
// element of y.
struct ReducePlan {
  Walk kept, reduced;
  explicit ReducePlan(const ReduceDimsArgs& args);
  // Returns whether elements next to each other in x belong to neighbouring elements of y rather
  // than to one sum.
  bool along_kept() const;
};

}  // namespace shale::kernels
