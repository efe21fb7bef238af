// GEMMs with few rows. They are memory-bound, so they read each row of b once, in place.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/gemm_few.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/cache_control.h>

#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/gemm_few.h"
#include "shale/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::F32Tag;
using kernels::HWY_NAMESPACE::F32Vec;
using kernels::HWY_NAMESPACE::kF32Lanes;
using kernels::HWY_NAMESPACE::load;
using kernels::HWY_NAMESPACE::load_n;
using kernels::HWY_NAMESPACE::sum_lanes;

constexpr int kTurns = 4;  // independent partial sums per element of c, to hide latency
// Prefetch distance in bytes. Prefetching helps because the hardware prefetcher restarts at each
// page. Rows of 16-bit elements are faster without it.
constexpr int64_t kAhead = 2048;

// Computes the dot products of kRows rows of a, with stride k, and one row of b. Writes them to
// `product` with stride `product_ld`.
template <typename T, int kRows>
HWY_INLINE void dots(const float* a, int64_t k, const T* b, float* product, int64_t product_ld) {
  const F32Tag d;
  F32Vec sums[kRows][kTurns];
  for (int r = 0; r < kRows; ++r) {
    for (int turn = 0; turn < kTurns; ++turn) sums[r][turn] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + kTurns * kF32Lanes <= k; i += kTurns * kF32Lanes) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t at = i + turn * kF32Lanes;
      if (sizeof(T) == 4) {
        hwy::Prefetch(reinterpret_cast<const char*>(b + at) + kAhead);
      }
      const F32Vec weights = load(d, b + at);
      for (int r = 0; r < kRows; ++r) {
        sums[r][turn] = hn::MulAdd(hn::LoadU(d, a + r * k + at), weights, sums[r][turn]);
      }
    }
  }
  for (; i < k; i += kF32Lanes) {
    const int64_t count = std::min(kF32Lanes, k - i);
    const F32Vec weights = load_n(d, b + i, count);
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = hn::MulAdd(load_n(d, a + r * k + i, count), weights, sums[r][0]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const F32Vec first = hn::Add(sums[r][0], sums[r][1]), last = hn::Add(sums[r][2], sums[r][3]);
    product[r * product_ld] = sum_lanes(d, hn::Add(first, last));
  }
}

// Processes as many rows of a at a time as fit the registers; for later rows of a, the row of b is
// in cache.
template <typename T>
void all_dots(const float* a, int64_t rows, int64_t k, const Matrix& b, int64_t cols,
              float* product, int64_t product_ld) {
  const T* row = static_cast<const T*>(b.data);
  for (int64_t col = 0; col < cols; ++col, row += b.ld) {
    for (int64_t r = 0; r < rows; r += 4) {
      const float* from = a + r * k;
      float* to = product + r * product_ld + col;
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dots<T, 1>(from, k, row, to, product_ld); break;
        case 2: dots<T, 2>(from, k, row, to, product_ld); break;
        case 3: dots<T, 3>(from, k, row, to, product_ld); break;
        default: dots<T, 4>(from, k, row, to, product_ld);
      }
    }
  }
}

void dot_block(const float* a, int64_t rows, int64_t k, const Matrix& b, int64_t cols,
               float* product, int64_t product_ld) {
  dispatch_float(b.dtype, [&]<typename T>() {
    all_dots<T>(a, rows, k, b, cols, product, product_ld);
  });
}

}  // namespace
}  // namespace shale::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::cpu {

HWY_EXPORT(dot_block);

void dot_products(const float* a, int64_t rows, int64_t k, const Matrix& b, int64_t cols,
                  float* product, int64_t product_ld) {
  HWY_DYNAMIC_DISPATCH(dot_block)(a, rows, k, b, cols, product, product_ld);
}

}  // namespace shale::kernels::cpu
#endif
