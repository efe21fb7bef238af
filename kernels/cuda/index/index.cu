#include "shale/kernels/index.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// gather: a thread owns an element of y. scatter_add: a thread owns a column y[o, :, i], and
// processes all k in order; no other thread adds to it. Neighbouring threads of a warp are
// neighbours in `inner`.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128;

struct Indices {
  const int32_t* data;
  int64_t stride[3];

  explicit Indices(const View& view)
      : data(view.as<int32_t>()), stride{view.stride(0), view.stride(1), view.stride(2)} {}
  __device__ __forceinline__ int64_t at(int64_t o, int64_t k, int64_t i) const {
    return data[o * stride[0] + k * stride[1] + i * stride[2]];
  }
};

// Sizes of a gather or scatter. `count`: of the indexed dimension; `picks`: indices along that
// dimension.
struct IndexSizes {
  int64_t outer, count, picks, inner;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* x, Indices index, T* y, IndexSizes n) {
  await_previous_grid();
  const int64_t element = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (element >= n.outer * n.picks * n.inner) return;
  const int64_t row = element / n.inner, i = element - row * n.inner;
  const int64_t o = row / n.picks, k = row - o * n.picks;
  const int64_t pick = index.at(o, k, i);
  const bool valid = pick >= 0 && pick < n.count;
  y[element] = valid ? x[(o * n.count + pick) * n.inner + i] : from_float<T>(NAN);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scatter_add_kernel(const T* x, Indices index, float* y, IndexSizes n, bool replace) {
  await_previous_grid();
  const int64_t column = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (column >= n.outer * n.inner) return;
  const int64_t o = column / n.inner, i = column - o * n.inner;
  for (int64_t k = 0; k < n.picks; ++k) {
    const int64_t pick = index.at(o, k, i);
    if (pick < 0 || pick >= n.count) continue;
    float& to = y[(o * n.count + pick) * n.inner + i];
    const float value = to_float(x[(o * n.picks + k) * n.inner + i]);
    to = replace ? value : to + value;
  }
}

}  // namespace

template <>
void run(const Exec& exec, const GatherArgs& a) {
  if (a.y.numel() == 0) return;
  const IndexSizes n = {a.x.size(0), a.x.size(1), a.y.size(1), a.x.size(2)};
  dispatch_float(a.x.dtype, [&]<typename T>() {
    simt::launch(gather_kernel<T>,
                 {.grid = ceil_div(a.y.numel(), int64_t{kThreads}), .block = kThreads}, exec,
                 a.x.as<T>(), Indices(a.index), a.y.as<T>(), n);
  });
}

template <>
void run(const Exec& exec, const ScatterAddArgs& a) {
  if (a.x.numel() == 0) return;
  const IndexSizes n = {a.y.size(0), a.y.size(1), a.x.size(1), a.y.size(2)};
  dispatch_float(a.x.dtype, [&]<typename T>() {
    simt::launch(scatter_add_kernel<T>,
                 {.grid = ceil_div(n.outer * n.inner, int64_t{kThreads}), .block = kThreads}, exec,
                 a.x.as<T>(), Indices(a.index), a.y.as<float>(), n, a.replace);
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
