#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Elementwise ops on contiguous tensors of one shape; computed in f32, rounded once to the dtype of
// a (u8: as in ops/pointwise.h). Names that end in _ work in place: they change their first
// argument, which must not be a leaf that requires a gradient, and move its version counter.

// add and mul broadcast too, as the ops of ops/pointwise.h do.
Tensor add(const Tensor& a, const Tensor& b);           // a + b
void add_(Tensor& a, const Tensor& b);                  // a += b
Tensor mul(const Tensor& a, const Tensor& b);           // a * b; keeps both
Tensor scale(const Tensor& x, float factor);            // factor * x
void scale_(Tensor& x, float factor);                   // x *= factor
Tensor gelu(const Tensor& x, Gelu kind = Gelu::kTanh);  // keeps x
Tensor cast(const Tensor& x, DType dtype);              // x itself if it has that dtype

// y = x * keep / (1 - p) + residual. The mask depends on (seed, step, site, global sample, element)
// alone (kernels/elementwise.h), so nothing is kept for backward, and where StepState::sample is
// set, as TrainStep does, it is the same on any number of ranks. Elsewhere micro-batches and ranks
// have masks of their own (AutogradState::numbers_samples). x: [samples, ...], or runs of elements
// of such a tensor, one for each of `places`, one after another; residual optional; p in [0, 1).
// `site` tells the dropouts of a model apart.
struct DropoutPlace {
  int64_t first = 0;            // the run's first element among those of all samples
  int64_t sample_elements = 0;  // of a sample
  int64_t elements = 0;         // of the run; multiples of 4, as the others
};
Tensor dropout(const Tensor& x, float p, uint32_t site, const Tensor& residual = {},
               const std::vector<DropoutPlace>& places = {});

}  // namespace shale
