#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Elementwise ops on contiguous tensors of one shape. Computed in f32 and rounded once to a's dtype
// (u8: see ops/pointwise.h). Ops whose names end in _ change their first argument in place; it must
// not be a leaf that requires a gradient, and its version counter advances.

// add and mul also broadcast, like the ops in ops/pointwise.h.
Tensor add(const Tensor& a, const Tensor& b);           // a + b
void add_(Tensor& a, const Tensor& b);                  // a += b
Tensor mul(const Tensor& a, const Tensor& b);           // a * b; keeps both for backward
Tensor scale(const Tensor& x, float factor);            // factor * x
void scale_(Tensor& x, float factor);                   // x *= factor
Tensor gelu(const Tensor& x, Gelu kind = Gelu::kTanh);  // keeps x for backward
// Converts to any dtype; returns x itself if x has it. Rounds to nearest. A float that becomes an
// integer is rounded towards zero and clamped to the range; an integer that does not fit wraps
// around. Autograd records casts between floats. fp64 tensors can be converted, but no other op
// computes with them; their gradients are f32.
Tensor cast(const Tensor& x, DType dtype);

// y = x * keep / (1 - p) + residual. The mask depends only on seed, step, site, global sample index
// and element (kernels/elementwise.h), so nothing is kept for backward. If StepState::sample is
// set, as TrainStep does, masks are the same on any number of ranks; otherwise micro-batches and
// ranks have different masks (AutogradState::numbers_samples). x: [samples, ...], or concatenated
// ranges of elements of such a tensor, one per entry of `places`. residual is optional; p is in [0,
// 1). Each dropout of a model needs its own `site`.
struct DropoutPlace {
  int64_t first = 0;            // index of the range's first element among all samples' elements
  int64_t sample_elements = 0;  // elements per sample
  int64_t elements = 0;         // elements in the range; all three fields are multiples of 4
};
Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual = {},
               const std::vector<DropoutPlace>& places = {});

}  // namespace shale
