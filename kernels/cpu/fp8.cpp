#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/fp8.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <array>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/cpu/simd-inl.h"
#include "shale/kernels/fp8.h"

// A thread owns bands of block_rows rows, and goes over one in tiles of kFp8Block columns. Loops
// over columns are plain: compilers make vectors of them.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kFp8Grain = 32768;  // elements

template <typename T>
struct Fp8Tile {
  const T* x;
  T* y;
  int64_t rows, columns, stride;
};

template <typename T>
HWY_INLINE uint32_t magnitude_bits(T x) {
  if constexpr (sizeof(T) == 2) {
    return static_cast<uint32_t>(x.bits & 0x7fffu) << 16;
  } else {
    return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  }
}

// Exact, as what is stored has four bits of mantissa.
template <typename T>
HWY_INLINE T stored(float x) {
  if constexpr (sizeof(T) == 2) {
    T y;
    y.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    return y;
  } else {
    return x;
  }
}

template <typename T>
HWY_INLINE void round_tile(const Fp8Tile<T>& tile, bool is_whole) {
  std::array<uint32_t, kFp8Block> largest{};
  for (int64_t row = 0; row < tile.rows; ++row) {
    const T* const x = tile.x + row * tile.stride;
    for (int64_t i = 0; i < tile.columns; ++i) {
      largest[size_t(i)] = std::max(largest[size_t(i)], magnitude_bits(x[i]));
    }
  }
  if (is_whole) largest.fill(*std::max_element(largest.begin(), largest.end()));
  std::array<float, kFp8Block> scales, inverses;
  for (size_t i = 0; i < largest.size(); ++i) {
    const int32_t k = e4m3_exponent(largest[i]);
    scales[i] = power_of_two(k);
    inverses[i] = power_of_two(-k);
  }
  for (int64_t row = 0; row < tile.rows; ++row) {
    const T* const x = tile.x + row * tile.stride;
    T* const y = tile.y + row * tile.stride;
    for (int64_t i = 0; i < tile.columns; ++i) {
      const auto at = size_t(i);
      y[i] = stored<T>(round_to_e4m3(to_f32(x[i]) * inverses[at]) * scales[at]);
    }
  }
}

template <typename T>
void round_to_fp8_typed(const Exec& exec, const RoundToFp8Args& a) {
  const int64_t rows = a.x.size(0), columns = a.x.size(1);
  const int64_t bands = (rows + a.block_rows - 1) / a.block_rows;
  const int64_t grain = std::max<int64_t>(1, kFp8Grain / (columns * a.block_rows));
  parallel_for(exec, bands, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t band = begin; band < end; ++band) {
      const int64_t row = band * a.block_rows;
      for (int64_t column = 0; column < columns; column += kFp8Block) {
        round_tile<T>({.x = a.x.as<T>() + row * columns + column,
                       .y = a.y.as<T>() + row * columns + column,
                       .rows = std::min(a.block_rows, rows - row),
                       .columns = std::min(kFp8Block, columns - column),
                       .stride = columns},
                      a.block_columns > 1);
      }
    }
  });
}

void round_to_fp8_target(const Exec& exec, const RoundToFp8Args& a) {
  if (a.x.dtype == DType::kBF16) return round_to_fp8_typed<bf16>(exec, a);
  round_to_fp8_typed<float>(exec, a);
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(round_to_fp8_target);

template <>
void cpu::run(const Exec& exec, const RoundToFp8Args& a) {
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(round_to_fp8_target)(exec, a);
}

}  // namespace shale::kernels
#endif
