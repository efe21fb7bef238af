#pragma once

#include <array>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

enum class ReduceOp : uint8_t {
  kSum,
  kMax,     // a NaN is larger than any number
  kMin,     // and smaller
  kArgMax,  // where the first of the largest is, along the one dimension that is reduced
};

// y = scale * op of x over the dimensions in which y has size 1. In f32, in an order that depends
// on shapes and strides alone, rounded once. Of no elements a sum is 0, and nothing else is
// defined.
struct ReduceDimsArgs {
  View x;  // f32, bf16 or f16, any strides
  View y;  // of x's rank, contiguous, sizes those of x or 1; f32, bf16 or f16; kArgMax: i32
  ReduceOp op = ReduceOp::kSum;
  float scale = 1;  // kSum alone
};

void check_args(const ReduceDimsArgs& a);

inline Slot<ReduceDimsArgs> reduce_dims{"reduce_dims"};

// Dimensions of a walk through a view, outermost first, merged where that is possible.
struct Walk {
  int count = 0;
  std::array<int64_t, kMaxDims> size{};
  std::array<int64_t, kMaxDims> stride{};  // in elements

  void add(int64_t dim_size, int64_t dim_stride);
  int64_t steps() const;
};

// The elements of y in order, and what each is made of.
struct ReducePlan {
  Walk kept, reduced;
  explicit ReducePlan(const ReduceDimsArgs& args);
  // Whether neighbours in y, rather than neighbours in a sum, are neighbours in x.
  bool along_kept() const;
};

}  // namespace shale::kernels
