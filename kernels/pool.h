#pragma once

#include "shale/base/view.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// The largest of the pixels of each window of kernel x kernel pixels, channel by channel:
//   y[n, i, j, c] = max over u, v of x[n, i stride + u - padding, j stride + v - padding, c]
// Of equal ones the first counts, row by row; a NaN is the largest. Images are dense [N, H, W, C];
// x, y: f32, bf16 or f16, alike. Padding is less than the kernel, so that no window is empty.
struct MaxPoolArgs {
  View x;              // [N, H, W, C]
  View y;              // [N, windows.count(H, kernel), windows.count(W, kernel), C]
  View place;          // like y, u8: u * kernel + v of the largest
  int64_t kernel = 1;  // at most 16
  Windows windows{};
};

// dx = the gradient of x: of each pixel the sum, in f32, over the windows whose largest it is.
struct MaxPoolGradArgs {
  View dy;     // [N, OH, OW, C]
  View place;  // [N, OH, OW, C] u8
  View dx;     // [N, H, W, C]
  int64_t kernel = 1;
  Windows windows{};
};

void check_args(const MaxPoolArgs& a);
void check_args(const MaxPoolGradArgs& a);

inline Slot<MaxPoolArgs> max_pool{"max_pool"};
inline Slot<MaxPoolGradArgs> max_pool_grad{"max_pool_grad"};

}  // namespace shale::kernels
