#pragma once

#include "shale/kernels/conv.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

using kernels::Windows;  // how windows lie on an image: stride and padding, alike both ways

// Two-dimensional convolution: y[n, i, j, o] = bias[o] + sum over u, v, c of
// x[n, i stride + u - padding, j stride + v - padding, c] weight[o, c, u, v].
// x: [N, H, W, C], contiguous; weight: [O, C, kh, kw]; bias: [O], optional. Returns [N, OH, OW, O],
// OH and OW as Windows::count(). One dtype. Throws ShapeError, DTypeError. Keeps x and weight for
// backward.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Windows& windows = {});

// The largest of each window of kernel x kernel pixels, channel by channel; padding counts as not
// there, and is less than the kernel. x: [N, H, W, C], contiguous. Where several are the largest,
// the first gets the gradient. Throws ShapeError, DTypeError. Keeps a byte per element of the
// result for backward.
Tensor max_pool2d(const Tensor& x, int64_t kernel, const Windows& windows);

// The mean over all pixels: [N, H, W, C] to [N, C]. Throws ShapeError.
Tensor global_average_pool(const Tensor& x);

}  // namespace shale
