#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Elementwise ops on contiguous tensors of one shape. They compute in f32 and round once to the
// dtype of a (u8: see ops/pointwise.h). An op with a name that ends in _ changes its first argument
// in place and advances its version counter; the argument must not be a leaf that requires a
// gradient.

// add and mul also broadcast, as described in ops/pointwise.h.
Tensor add(const Tensor& a, const Tensor& b);           // a + b
void add_(Tensor& a, const Tensor& b);                  // a += b
Tensor mul(const Tensor& a, const Tensor& b);           // a * b; keeps both for backward
Tensor scale(const Tensor& x, float factor);            // factor * x
void scale_(Tensor& x, float factor);                   // x *= factor
Tensor gelu(const Tensor& x, Gelu kind = Gelu::kTanh);  // keeps x for backward
// Converts x to any dtype; returns x itself if it has the dtype. Rounds to nearest. A float that
// becomes an integer is rounded towards zero and clamped to the integer's range. An integer that
// does not fit wraps around. Autograd records casts between floats. fp64 tensors can be converted,
// but no other op computes with them; their gradients are f32.
Tensor cast(const Tensor& x, DType dtype);

// y = x * keep / (1 - p) + residual, where keep is a random mask of 0 and 1. The mask depends only
// on seed, step, site, global sample index and element (kernels/elementwise.h), so nothing is kept
// for backward. If StepState::sample is set, as by TrainStep, masks are the same on any number of
// ranks. Otherwise micro-batches and ranks have different masks (AutogradState::numbers_samples).
// x: [samples, ...], or concatenated ranges of elements of such a tensor, one per entry of
// `places`. residual is optional; p is in [0, 1). Each dropout of a model needs its own `site`.
struct DropoutPlace {
  int64_t first = 0;  // index of the range's first element among the elements of all samples
  int64_t sample_elements = 0;  // number of elements of a sample
  int64_t elements = 0;  // number of elements in the range; all three fields are multiples of 4
};
Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual = {},
               const std::vector<DropoutPlace>& places = {});

}  // namespace shale
