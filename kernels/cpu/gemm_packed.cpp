// A GEMM that converts its operands to f32 while it copies ("packs") them into the order in which
// the innermost loop reads them. For each range of k, it packs all rows of a; then, one strip of
// columns after the other, it packs b's strip, which fits the L1 cache, and multiplies all rows
// with it. The innermost loop keeps a tile of c, kTileRows x kStrip, in registers.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/gemm_packed.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <algorithm>

#include "shale/base/tf32.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/gemm_packed.h"
#include "shale/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = ::shale::kernels::HWY_NAMESPACE;
using simd::F32Tag;
using simd::F32Vec;
using simd::kF32Lanes;

constexpr int64_t kMaxK = 256;  // maximum range of k: a strip of b then takes 32 KiB with AVX-512
// AVX-512 has 32 registers, for 24 sums, two vectors of b and elements of a. Others have 16.
constexpr int64_t kTileRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
constexpr int64_t kStrip = 2 * kF32Lanes;
// A packed tile of a: [kTileRows, kRowStride] or, if a is transposed, [k, kColumnStride]. The
// padding of rows spreads them over the sets of the cache.
constexpr int64_t kRowStride = kMaxK + 16;
constexpr int64_t kColumnStride = (kTileRows + kF32Lanes - 1) / kF32Lanes * kF32Lanes;

constexpr int64_t tile_floats(bool transposed, int64_t k) {
  return transposed ? k * kColumnStride : kTileRows * kRowStride;
}

// Copies `lines` lines of `length` elements; line i goes to to + i * to_ld, whose last vector may
// be written as a whole.
template <typename T>
void copy_lines(const T* from, int64_t ld, int64_t lines, int64_t length, float* to,
                int64_t to_ld) {
  const F32Tag d;
  for (int64_t i = 0; i < lines; ++i, from += ld, to += to_ld) {
    int64_t j = 0;
    for (; j + kF32Lanes <= length; j += kF32Lanes) hn::StoreU(simd::load(d, from + j), d, to + j);
    if (j < length) hn::StoreU(simd::load_n(d, from + j, length - j), d, to + j);
  }
}

// Returns a vector whose i-th four lanes are the first four elements of line i.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_fours(D d, const T* from, int64_t ld) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return simd::load(d, from);
  } else {
    const hn::Half<D> half;
    const T* upper = from + int64_t(hn::MaxLanes(half)) / 4 * ld;
    return hn::Combine(d, load_fours(half, upper, ld), load_fours(half, from, ld));
  }
}

// Copies element k of line j to to[k * kStrip + j], for kF32Lanes lines of `length` elements.
template <typename T>
void transpose_lines(const T* from, int64_t ld, int64_t length, float* to) {
  const F32Tag d;
  int64_t k = 0;
  for (; k + 4 <= length; k += 4, to += 4 * kStrip) {
    // v0 has lines 0, 4, 8, ..., v1 has lines 1, 5, 9, ... Each four lanes of v0 to v3 are a 4 x 4
    // matrix, which is transposed.
    const T* at = from + k;
    const F32Vec v0 = load_fours(d, at, 4 * ld), v1 = load_fours(d, at + ld, 4 * ld);
    const F32Vec v2 = load_fours(d, at + 2 * ld, 4 * ld), v3 = load_fours(d, at + 3 * ld, 4 * ld);
    const F32Vec low02 = hn::InterleaveLower(d, v0, v2), low13 = hn::InterleaveLower(d, v1, v3);
    const F32Vec high02 = hn::InterleaveUpper(d, v0, v2), high13 = hn::InterleaveUpper(d, v1, v3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + kStrip);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + 2 * kStrip);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + 3 * kStrip);
  }
  for (; k < length; ++k, to += kStrip) {
    for (int64_t j = 0; j < kF32Lanes; ++j) to[j] = to_f32(from[j * ld + k]);
  }
}

// Packs a strip of b: [k, kStrip], with zeros after its columns.
template <typename T>
void pack_strip(const Matrix& b, int64_t k, int64_t cols, float* to) {
  if (cols < kStrip) std::fill_n(to, k * kStrip, 0.f);
  const T* from = static_cast<const T*>(b.data);
  if (!b.transposed) return copy_lines(from, b.ld, k, cols, to, kStrip);
  int64_t j = 0;
  for (; j + kF32Lanes <= cols; j += kF32Lanes) transpose_lines(from + j * b.ld, b.ld, k, to + j);
  for (; j < cols; ++j) {
    for (int64_t i = 0; i < k; ++i) to[i * kStrip + j] = to_f32(from[j * b.ld + i]);
  }
}

// Packs the rows of a, tile by tile.
template <typename T>
void pack_rows(const Matrix& a, int64_t rows, int64_t k, float* to) {
  const T* from = static_cast<const T*>(a.data);
  for (int64_t i = 0; i < rows; i += kTileRows, to += tile_floats(a.transposed, k)) {
    const int64_t count = std::min(kTileRows, rows - i);
    if (a.transposed) {
      copy_lines(from + i, a.ld, k, count, to, kColumnStride);
    } else {
      copy_lines(from + i * a.ld, a.ld, count, k, to, kRowStride);
    }
  }
}

// Computes kRows rows of a strip of c from packed operands. cols: the strip's columns, 1 to kStrip.
template <int kRows, bool kTransposed>
HWY_INLINE void multiply_tile(const float* a, const float* b, int64_t k, float* c, int64_t ldc,
                              int64_t cols, bool accumulate) {
  const F32Tag d;
  constexpr int64_t kNextRow = kTransposed ? 1 : kRowStride;
  constexpr int64_t kNextK = kTransposed ? kColumnStride : 1;
  const int64_t first = std::min(cols, kF32Lanes), second = cols - first;
  const bool is_whole = cols == kStrip;
  F32Vec sums[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float* row = c + r * ldc;
    if (!accumulate) {
      sums[r][0] = sums[r][1] = hn::Zero(d);
    } else if (is_whole) {
      sums[r][0] = hn::LoadU(d, row), sums[r][1] = hn::LoadU(d, row + kF32Lanes);
    } else {
      sums[r][0] = simd::load_n(d, row, first);
      sums[r][1] = second > 0 ? simd::load_n(d, row + kF32Lanes, second) : hn::Zero(d);
    }
  }
  for (int64_t i = 0; i < k; ++i, a += kNextK, b += kStrip) {
    const F32Vec b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kF32Lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32Vec x = hn::Set(d, a[r * kNextRow]);
      sums[r][0] = hn::MulAdd(x, b0, sums[r][0]);
      sums[r][1] = hn::MulAdd(x, b1, sums[r][1]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* row = c + r * ldc;
    if (is_whole) {
      hn::StoreU(sums[r][0], d, row), hn::StoreU(sums[r][1], d, row + kF32Lanes);
    } else {
      simd::store_n(sums[r][0], d, row, first);
      if (second > 0) simd::store_n(sums[r][1], d, row + kF32Lanes, second);
    }
  }
}

// Calls multiply_tile() for `rows` rows, 1 to kRows.
template <int kRows, bool kTransposed>
HWY_INLINE void multiply_rows(int64_t rows, const float* a, const float* b, int64_t k, float* c,
                              int64_t ldc, int64_t cols, bool accumulate) {
  if (kRows == 1 || rows == kRows) {
    multiply_tile<kRows, kTransposed>(a, b, k, c, ldc, cols, accumulate);
  } else if constexpr (kRows > 1) {
    multiply_rows<kRows - 1, kTransposed>(rows, a, b, k, c, ldc, cols, accumulate);
  }
}

template <bool kTransposed>
void multiply_strip(const PackedMatmul& m, const float* a, const float* b, int64_t k, float* c,
                    int64_t cols, bool accumulate) {
  for (int64_t i = 0; i < m.rows; i += kTileRows, a += tile_floats(kTransposed, k)) {
    multiply_rows<kTileRows, kTransposed>(std::min(kTileRows, m.rows - i), a, b, k, c + i * m.ldc,
                                          m.ldc, cols, accumulate);
  }
}

int64_t tiles(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

void run_block(const PackedMatmul& m, float* scratch) {
  float* const strip = scratch;
  float* const packed = scratch + kMaxK * kStrip;
  const auto round = [&](float* values, int64_t count) {
    if (m.tf32) std::transform(values, values + count, values, round_to_tf32);
  };
  const int64_t ranges = (m.k + kMaxK - 1) / kMaxK;
  for (int64_t range = 0; range < ranges; ++range) {
    const int64_t begin = m.k * range / ranges, k = m.k * (range + 1) / ranges - begin;
    const bool accumulate = range > 0;
    Matrix a = m.a, b = m.b;
    a.data = m.a.at(0, begin);
    dispatch_float(a.dtype, [&]<typename T>() { pack_rows<T>(a, m.rows, k, packed); });
    round(packed, tiles(m.rows) * tile_floats(a.transposed, k));
    for (int64_t j = 0; j < m.cols; j += kStrip) {
      const int64_t cols = std::min(kStrip, m.cols - j);
      b.data = m.b.at(begin, j);
      dispatch_float(b.dtype, [&]<typename T>() { pack_strip<T>(b, k, cols, strip); });
      round(strip, k * kStrip);
      const auto multiply = a.transposed ? multiply_strip<true> : multiply_strip<false>;
      multiply(m, packed, strip, k, m.c + j, cols, accumulate);
    }
  }
}

size_t scratch_floats(int64_t rows, int64_t k, bool a_transposed) {
  return size_t(kMaxK * kStrip + tiles(rows) * tile_floats(a_transposed, std::min(k, kMaxK)));
}

}  // namespace
}  // namespace shale::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::cpu {

HWY_EXPORT(run_block);
HWY_EXPORT(scratch_floats);

size_t packed_scratch_floats(int64_t rows, int64_t k, bool a_transposed) {
  return HWY_DYNAMIC_DISPATCH(scratch_floats)(rows, k, a_transposed);
}

void run_packed(const PackedMatmul& matmul, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_block)(matmul, scratch);
}

}  // namespace shale::kernels::cpu
#endif
