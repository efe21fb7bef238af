#pragma once

#include "shale/base/view.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Maximum of each window of kernel x kernel pixels, per channel:
//   y[n, i, j, c] = max over u, v of x[n, i stride + u - padding, j stride + v - padding, c]
// The first of equal pixels counts, in row-major order; a NaN is larger than all numbers. Images
// are dense [N, H, W, C]; x and y have one dtype: f32, bf16 or f16. Padding is less than the
// kernel, so no window is empty.
struct MaxPoolArgs {
  View x;              // [N, H, W, C]
  View y;              // [N, windows.count(H, kernel), windows.count(W, kernel), C]
  View place;          // like y, u8: u * kernel + v of the maximum
  int64_t kernel = 1;  // at most 16
  Windows windows{};
};

// dx = the gradient of x: for each pixel the sum of dy, in f32, over the windows in which this
// pixel is the maximum.
struct MaxPoolGradArgs {
  View dy;     // [N, OH, OW, C]
  View place;  // [N, OH, OW, C] u8: as in MaxPoolArgs
  View dx;     // [N, H, W, C]
  int64_t kernel = 1;
  Windows windows{};
};

void check_args(const MaxPoolArgs& a);
void check_args(const MaxPoolGradArgs& a);

inline Slot<MaxPoolArgs> max_pool{"max_pool"};
inline Slot<MaxPoolGradArgs> max_pool_grad{"max_pool_grad"};

}  // namespace shale::kernels
