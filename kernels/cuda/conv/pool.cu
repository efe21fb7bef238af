#include "shale/kernels/pool.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Max pooling. Forward: a thread owns a channel of a window. Backward: a thread owns a channel of a
// pixel, and reads the windows that contain the pixel.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

struct PoolShape {
  int rows, cols, channels;
  int out_rows, out_cols;
  int kernel, stride, padding;
};

PoolShape pool_shape(const View& x, const View& y, int64_t kernel, const Windows& windows) {
  return {.rows = int(x.size(1)),
          .cols = int(x.size(2)),
          .channels = int(x.size(3)),
          .out_rows = int(y.size(1)),
          .out_cols = int(y.size(2)),
          .kernel = int(kernel),
          .stride = int(windows.stride),
          .padding = int(windows.padding)};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(PoolShape s, const T* x, T* y, uint8_t* place, int64_t count) {
  await_previous_grid();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int channel = static_cast<int>(i % s.channels);
  const int64_t window = i / s.channels;
  const int first_col = static_cast<int>(window % s.out_cols) * s.stride - s.padding;
  const int first_row = static_cast<int>(window / s.out_cols % s.out_rows) * s.stride - s.padding;
  const int64_t image = window / s.out_cols / s.out_rows;
  float best = 0;
  int best_place = -1;
  for (int u = 0; u < s.kernel; ++u) {
    const int row = first_row + u;
    if (row < 0 || row >= s.rows) continue;
    for (int v = 0; v < s.kernel; ++v) {
      const int col = first_col + v;
      if (col < 0 || col >= s.cols) continue;
      const float value =
          to_float(x[((image * s.rows + row) * s.cols + col) * s.channels + channel]);
      const bool is_nan = value != value && best == best;
      if (best_place >= 0 && !(value > best) && !is_nan) continue;
      best = value;
      best_place = u * s.kernel + v;
    }
  }
  y[i] = from_float<T>(best);
  place[i] = static_cast<uint8_t>(best_place);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad_kernel(PoolShape s, const T* dy, const uint8_t* place, T* dx, int64_t count) {
  await_previous_grid();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int channel = static_cast<int>(i % s.channels);
  const int64_t pixel = i / s.channels;
  const int col = static_cast<int>(pixel % s.cols) + s.padding;
  const int row = static_cast<int>(pixel / s.cols % s.rows) + s.padding;
  const int64_t image = pixel / s.cols / s.rows;
  const int first_row = row < s.kernel ? 0 : (row - s.kernel) / s.stride + 1;
  const int first_col = col < s.kernel ? 0 : (col - s.kernel) / s.stride + 1;
  float sum = 0;
  for (int r = first_row; r < s.out_rows && r * s.stride <= row; ++r) {
    for (int c = first_col; c < s.out_cols && c * s.stride <= col; ++c) {
      const int64_t at = ((image * s.out_rows + r) * s.out_cols + c) * s.channels + channel;
      const int cell = (row - r * s.stride) * s.kernel + col - c * s.stride;
      if (place[at] == cell) sum += to_float(dy[at]);
    }
  }
  dx[i] = from_float<T>(sum);
}

}  // namespace

template <>
void run(const Exec& exec, const MaxPoolArgs& a) {
  const int64_t count = a.y.numel();
  if (count == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() {
    simt::launch(max_pool_kernel<T>,
                 {.grid = ceil_div(count, int64_t{kThreads}), .block = kThreads}, exec,
                 pool_shape(a.x, a.y, a.kernel, a.windows), a.x.as<T>(), a.y.as<T>(),
                 a.place.as<uint8_t>(), count);
  });
}

template <>
void run(const Exec& exec, const MaxPoolGradArgs& a) {
  const int64_t count = a.dx.numel();
  if (count == 0) return;
  dispatch_float(a.dx.dtype, [&]<typename T>() {
    simt::launch(max_pool_grad_kernel<T>,
                 {.grid = ceil_div(count, int64_t{kThreads}), .block = kThreads}, exec,
                 pool_shape(a.dx, a.dy, a.kernel, a.windows), a.dy.as<T>(), a.place.as<uint8_t>(),
                 a.dx.as<T>(), count);
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
