#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// LayerNorm over the last dimension (arXiv:1607.06450, eq. 4): y = (x - mean) / sqrt(var + eps) *
// gain + bias. x: [..., C], contiguous; gain, bias: [C]; bias is optional; y: like x. Throws
// ShapeError, DTypeError. Keeps x, gain and two f32 per row for backward.
Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, float eps = 1e-5f);

// Results of a norm that also adds a branch to the residual stream.
struct NormedStream {
  Tensor y;       // the normalised sum
  Tensor stream;  // x + branch, the new residual stream
};

// stream = x + branch, or x itself if branch is undefined; y = layer_norm(stream). Forward is one
// pass over memory. Backward adds both gradients of the stream in the norm's pass.
NormedStream stream_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& gain,
                               const Tensor& bias, float eps = 1e-5f);

// RMSNorm over the last dimension (arXiv:1910.07467, eq. 4): y = x / sqrt(mean(x^2) + eps) * gain.
// x: [..., C], contiguous; gain: [C]; y: like x. Throws ShapeError, DTypeError. Keeps x, gain and
// one f32 per row for backward.
Tensor rms_norm(const Tensor& x, const Tensor& gain, float eps = 1e-5f);

// stream_layer_norm() with RMSNorm: stream = x + branch (x itself if branch is undefined), y =
// rms_norm(stream).
NormedStream stream_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& gain,
                             float eps = 1e-5f);

}  // namespace shale
