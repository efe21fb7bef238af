#include "shale/kernels/moe.h"

#include <initializer_list>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Kernels that permute and combine rows of tokens. A warp owns a row of the result, or one dot
// product. Rows of x are read whole, in packs.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kWarps = 4;  // warps per block
constexpr int kThreads = kWarps * kWarpSize;

__device__ __forceinline__ int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
}

// Returns the first element of this lane, if lanes have kCount neighbouring elements each.
template <int kCount>
__device__ __forceinline__ int first_of_lane() {
  return static_cast<int>(threadIdx.x) % kWarpSize * kCount;
}

template <typename T>
struct Permute {
  const T* x;
  const int32_t* sources;
  const float* weights;  // null: rows are not weighted
  T* y;
  int64_t rows, C;
  int active;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads, 8) permute_kernel(Permute<T> a) {
  await_previous_grid();
  const int64_t row = warp_of_grid();
  if (row >= a.rows) return;
  const int32_t source = a.sources[row];
  const bool is_somebodys = source >= 0;
  const T* const from = a.x + (is_somebodys ? source / a.active : 0) * a.C;
  const float weight = is_somebodys && a.weights != nullptr ? a.weights[source] : 1.f;
#pragma unroll 4
  for (int64_t c = first_of_lane<kCount>(); c < a.C; c += kWarpSize * kCount) {
    Floats<kCount> values{};
    if (is_somebodys) values = load_floats<kCount>(from + c);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.at[i] *= weight;
    store_floats(a.y + row * a.C + c, values);
  }
}

template <typename T>
struct Combine {
  const T* x;
  const int32_t* rows;
  const float* weights;  // null: rows are not weighted
  const T* residual;     // null: no residual
  T* y;
  int64_t tokens, C;
  int k;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads, 8) combine_kernel(Combine<T> a) {
  await_previous_grid();
  const int64_t token = warp_of_grid();
  if (token >= a.tokens) return;
  const int32_t* const rows = a.rows + token * a.k;
  for (int64_t c = first_of_lane<kCount>(); c < a.C; c += kWarpSize * kCount) {
    Floats<kCount> sum{};
    if (a.residual != nullptr) sum = load_floats<kCount>(a.residual + token * a.C + c);
#pragma unroll 2
    for (int j = 0; j < a.k; ++j) {
      const int64_t row = rows[j];
      if (row < 0) continue;
      const float weight = a.weights != nullptr ? a.weights[token * a.k + j] : 1.f;
      const Floats<kCount> values = load_floats<kCount>(a.x + row * a.C + c);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.at[i] = fmaf(weight, values.at[i], sum.at[i]);
    }
    store_floats(a.y + token * a.C + c, sum);
  }
}

template <typename T>
struct Dots {
  const T* x;
  const T* y;
  const int32_t* rows;
  float* dots;
  int64_t choices, C;
  int k;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads, 8) dots_kernel(Dots<T> a) {
  await_previous_grid();
  const int64_t choice = warp_of_grid();
  if (choice >= a.choices) return;
  const int64_t row = a.rows[choice];
  float sum = 0;
  if (row >= 0) {
    const T* const x = a.x + choice / a.k * a.C;
    const T* const y = a.y + row * a.C;
#pragma unroll 4
    for (int64_t c = first_of_lane<kCount>(); c < a.C; c += kWarpSize * kCount) {
      const Floats<kCount> left = load_floats<kCount>(x + c), right = load_floats<kCount>(y + c);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum = fmaf(left.at[i], right.at[i], sum);
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) a.dots[choice] = sum;
}

// Calls fn.template operator()<T, kCount>(). kCount is the size of a pack if the rows of all
// matrices begin at multiples of a pack, else 1.
template <class Fn>
void dispatch_packs(DType dtype, int64_t C, std::initializer_list<View> matrices, const Fn& fn) {
  dispatch_float(dtype, [&]<typename T>() {
    bool packs = C % kPackSize<T> == 0;
    for (const View& matrix : matrices) {
      packs = packs && reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0;
    }
    if (packs) return fn.template operator()<T, kPackSize<T>>();
    fn.template operator()<T, 1>();
  });
}

}  // namespace

template <>
void run(const Exec& exec, const MoePermuteArgs& a) {
  if (a.y.numel() == 0) return;
  const int64_t C = a.y.size(1), rows = a.y.size(0);
  dispatch_packs(a.x.dtype, C, {a.x, a.y}, [&]<typename T, int kCount>() {
    simt::launch(permute_kernel<T, kCount>, {.grid = ceil_div(rows, kWarps), .block = kThreads},
                 exec,
                 Permute<T>{.x = a.x.as<T>(),
                            .sources = a.sources.as<int32_t>(),
                            .weights = a.weights.defined() ? a.weights.as<float>() : nullptr,
                            .y = a.y.as<T>(),
                            .rows = rows,
                            .C = C,
                            .active = static_cast<int>(a.active)});
  });
}

template <>
void run(const Exec& exec, const MoeCombineArgs& a) {
  if (a.y.numel() == 0) return;
  const int64_t C = a.y.size(1), tokens = a.y.size(0);
  dispatch_packs(a.x.dtype, C, {a.x, a.y, a.residual}, [&]<typename T, int kCount>() {
    simt::launch(combine_kernel<T, kCount>, {.grid = ceil_div(tokens, kWarps), .block = kThreads},
                 exec,
                 Combine<T>{.x = a.x.as<T>(),
                            .rows = a.rows.as<int32_t>(),
                            .weights = a.weights.defined() ? a.weights.as<float>() : nullptr,
                            .residual = a.residual.defined() ? a.residual.as<T>() : nullptr,
                            .y = a.y.as<T>(),
                            .tokens = tokens,
                            .C = C,
                            .k = static_cast<int>(a.rows.size(1))});
  });
}

template <>
void run(const Exec& exec, const MoeDotsArgs& a) {
  const int64_t choices = a.rows.numel(), C = a.x.size(1);
  if (choices == 0) return;
  dispatch_packs(a.x.dtype, C, {a.x, a.y}, [&]<typename T, int kCount>() {
    simt::launch(dots_kernel<T, kCount>, {.grid = ceil_div(choices, kWarps), .block = kThreads},
                 exec,
                 Dots<T>{.x = a.x.as<T>(),
                         .y = a.y.as<T>(),
                         .rows = a.rows.as<int32_t>(),
                         .dots = a.dots.as<float>(),
                         .choices = choices,
                         .C = C,
                         .k = static_cast<int>(a.rows.size(1))});
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
