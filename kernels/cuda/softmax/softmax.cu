#include "shale/kernels/softmax.h"

#include <cfloat>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Softmax. A warp owns a row of at most kWarpCols columns, a block owns a longer row. Forward reads
// a row three times, for its maximum, its sum and the result; all but the first come from the
// caches. Backward reads it twice.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kWarpCols = 1024;

__device__ __forceinline__ float exp_below(float x) {  // for x <= 0
  return fast_exp2(x * 1.44269504f);
}

// The threads of a row: `first` is this thread's index among `count`.
template <bool kWarpPerRow>
struct Owner {
  int64_t row;
  int first, count;

  __device__ __forceinline__ Owner()
      : row(kWarpPerRow ? blockIdx.x * int64_t{kThreads / kWarpSize} + threadIdx.x / kWarpSize
                        : int64_t{blockIdx.x}),
        first(kWarpPerRow ? threadIdx.x % kWarpSize : threadIdx.x),
        count(kWarpPerRow ? kWarpSize : kThreads) {}

  __device__ __forceinline__ float sum(float x) const {
    return kWarpPerRow ? warp_sum(x) : block_sum(x);
  }
  __device__ __forceinline__ float max(float x) const {
    return kWarpPerRow ? warp_max(x) : block_max(x);
  }
};

template <typename T, bool kWarpPerRow>
__global__ void __launch_bounds__(kThreads)
    softmax_fwd_kernel(const T* x, T* y, int64_t rows, int64_t cols, bool log) {
  await_previous_grid();
  const Owner<kWarpPerRow> owner;
  if (owner.row >= rows) return;
  x += owner.row * cols, y += owner.row * cols;
  float top = -INFINITY;
  for (int64_t c = owner.first; c < cols; c += owner.count) top = fmaxf(top, to_float(x[c]));
  top = owner.max(top);
  float sum = 0;
  for (int64_t c = owner.first; c < cols; c += owner.count) sum += exp_below(to_float(x[c]) - top);
  sum = owner.sum(sum);
  const float log_sum = logf(sum), factor = 1.f / sum;
  for (int64_t c = owner.first; c < cols; c += owner.count) {
    const float shifted = to_float(x[c]) - top;
    y[c] = from_float<T>(log ? shifted - log_sum : exp_below(shifted) * factor);
  }
}

template <typename T, bool kWarpPerRow>
__global__ void __launch_bounds__(kThreads)
    softmax_bwd_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t cols, bool log) {
  await_previous_grid();
  const Owner<kWarpPerRow> owner;
  if (owner.row >= rows) return;
  y += owner.row * cols, dy += owner.row * cols, dx += owner.row * cols;
  float sum = 0;
  for (int64_t c = owner.first; c < cols; c += owner.count) {
    sum += log ? to_float(dy[c]) : to_float(dy[c]) * to_float(y[c]);
  }
  sum = owner.sum(sum);
  for (int64_t c = owner.first; c < cols; c += owner.count) {
    const float grad = to_float(dy[c]), value = to_float(y[c]);
    dx[c] = from_float<T>(log ? grad - exp_below(value) * sum : value * (grad - sum));
  }
}

// Calls fn.template operator()<kWarpPerRow>(blocks).
template <class Fn>
void dispatch_rows(int64_t rows, int64_t cols, const Fn& fn) {
  if (cols <= kWarpCols) {
    fn.template operator()<true>(ceil_div(rows, int64_t{kThreads / kWarpSize}));
  } else {
    fn.template operator()<false>(rows);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const SoftmaxFwdArgs& args) {
  if (args.x.numel() == 0) return;
  const int64_t rows = args.x.size(0), cols = args.x.size(1);
  dispatch_float(args.x.dtype, [&]<typename T>() {
    dispatch_rows(rows, cols, [&]<bool kWarpPerRow>(int64_t blocks) {
      simt::launch(softmax_fwd_kernel<T, kWarpPerRow>, {.grid = blocks, .block = kThreads}, exec,
                   args.x.as<T>(), args.y.as<T>(), rows, cols, args.log);
    });
  });
}

template <>
void run(const Exec& exec, const SoftmaxBwdArgs& args) {
  if (args.y.numel() == 0) return;
  const int64_t rows = args.y.size(0), cols = args.y.size(1);
  dispatch_float(args.y.dtype, [&]<typename T>() {
    dispatch_rows(rows, cols, [&]<bool kWarpPerRow>(int64_t blocks) {
      simt::launch(softmax_bwd_kernel<T, kWarpPerRow>, {.grid = blocks, .block = kThreads}, exec,
                   args.y.as<T>(), args.dy.as<T>(), args.dx.as<T>(), rows, cols, args.log);
    });
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
