#pragma once

#include "shale/kernels/conv.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

using kernels::Windows;  // stride and padding of windows, the same for height and width

// 2D convolution: y[n, i, j, o] = bias[o] + sum over u, v, c of x[n, i stride + u - padding, j
// stride + v - padding, c] weight[o, c, u, v]. x: [N, H, W, C], contiguous; weight: [O, C, kh, kw];
// bias: [O], optional. All have one dtype. Returns [N, OH, OW, O] with OH and OW from
// Windows::count(). Throws ShapeError, DTypeError. Keeps x and weight for backward.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Windows& windows = {});

// Max pooling over windows of kernel x kernel pixels, per channel. Padding is ignored and must be
// less than kernel. x: [N, H, W, C], contiguous. If several elements are the maximum, the first
// gets the gradient. Throws ShapeError, DTypeError. Keeps one byte per element of the result for
// backward.
Tensor max_pool2d(const Tensor& x, int64_t kernel, const Windows& windows);

// Mean over all pixels: [N, H, W, C] to [N, C]. Throws ShapeError.
Tensor global_average_pool(const Tensor& x);

}  // namespace shale
