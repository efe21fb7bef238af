#include "shale/kernels/fp8.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// A warp has a tile of block_rows rows and kFp8Block columns, a lane four columns, a warp apart, so
// that neighbours read neighbours. The bits are the CPU's.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kColumns = kFp8Block / kWarpSize;  // of a lane

struct Fp8Matrix {
  int64_t rows, columns, block_rows, across;  // across: tiles side by side
  bool is_whole;                              // a tile has one scale
};

__device__ __forceinline__ uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    round_to_fp8_kernel(const T* x, T* y, Fp8Matrix m, int64_t tiles) {
  await_previous_grid();
  const int64_t tile = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarpSize;
  if (tile >= tiles) return;
  const int64_t first_row = tile / m.across * m.block_rows;
  const int64_t last_row = first_row + m.block_rows < m.rows ? first_row + m.block_rows : m.rows;
  const int64_t first_column = tile % m.across * kFp8Block + threadIdx.x % kWarpSize;
  // Comparing bits, what is not finite is the largest.
  uint32_t largest[kColumns] = {};
  for (int64_t row = first_row; row < last_row; ++row) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int64_t column = first_column + i * kWarpSize;
      if (column >= m.columns) continue;
      const uint32_t bits = bits_of(to_float(x[row * m.columns + column])) & 0x7fffffffu;
      largest[i] = bits > largest[i] ? bits : largest[i];
    }
  }
  if (m.is_whole) {
    uint32_t most = 0;
    for (int i = 0; i < kColumns; ++i) most = largest[i] > most ? largest[i] : most;
    // The exponent is what matters; warp_max takes floats, and would skip NaNs.
    const int32_t k = e4m3_exponent(most);
    const auto all = static_cast<int32_t>(warp_max(static_cast<float>(k)));
    for (int i = 0; i < kColumns; ++i) largest[i] = static_cast<uint32_t>(all);
  } else {
    for (int i = 0; i < kColumns; ++i) {
      largest[i] = static_cast<uint32_t>(e4m3_exponent(largest[i]));
    }
  }
  for (int64_t row = first_row; row < last_row; ++row) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int64_t column = first_column + i * kWarpSize;
      if (column >= m.columns) continue;
      const auto k = static_cast<int32_t>(largest[i]);
      const int64_t at = row * m.columns + column;
      y[at] = from_float<T>(round_to_e4m3(to_float(x[at]) * power_of_two(-k)) * power_of_two(k));
    }
  }
}

}  // namespace

template <>
void run(const Exec& exec, const RoundToFp8Args& a) {
  if (a.x.numel() == 0) return;
  const int64_t rows = a.x.size(0), columns = a.x.size(1);
  const Fp8Matrix m = {rows, columns, a.block_rows, ceil_div(columns, kFp8Block),
                       a.block_columns > 1};
  const int64_t tiles = ceil_div(rows, a.block_rows) * m.across;
  const simt::LaunchConfig launch = {.grid = ceil_div(tiles, int64_t{kWarps}), .block = kThreads};
  const auto round = [&]<typename T>(T) {
    simt::launch(round_to_fp8_kernel<T>, launch, exec, a.x.as<T>(), a.y.as<T>(), m, tiles);
  };
  if (a.x.dtype == DType::kBF16) return round(bf16{});
  round(float{});
}

}  // namespace shale::kernels::SHALE_BACKEND
