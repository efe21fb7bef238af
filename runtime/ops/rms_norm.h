#pragma once

#include "runtime/ops/norm.h"

namespace shale {

// RMSNorm over the last dimension (arXiv:1910.07467, eq. 4): y = x / sqrt(mean(x^2) + eps) * gain.
// x: [..., C], contiguous; gain: [C]; y: like x. Throws ShapeError, DTypeError. Keeps x, gain and
// one f32 per row for backward.
Tensor rms_norm(const Tensor& x, const Tensor& gain, float eps = 1e-5f);

// stream = x + branch (x itself when branch is undefined), y = rms_norm(stream): as
// stream_layer_norm, one pass over memory each way.
NormedStream stream_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& gain,
                             float eps = 1e-5f);

}  // namespace shale
