#include "shale/kernels/fp8.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/fp8_tile.cuh"
#include "shale/kernels/cuda/run.h"

// Quantizes x to fp8. A thread block has a tile of x (fp8_tile.cuh). The bits equal those of the
// CPU.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kTile = static_cast<int>(kFp8Block);
constexpr int kThreads = kFp8TileThreads, kWarps = kThreads / kWarpSize;
constexpr int kRun = kFp8Run, kRunsOfLine = kFp8RunsOfLine;

struct QuantizeWork {
  const bf16* x;
  int64_t rows, columns, across;  // across: number of tiles side by side in x
  bool packs;                     // rows of x may be read in packs
  Fp8OperandMemory by_rows, by_columns;
};

struct ColumnScratch {
  uint32_t largest[kWarps][kTile];
  int32_t exponents[kTile];
};

// A thread's elements of the tile, with their position.
struct OwnPart : Fp8TilePlace {
  Floats<kRun> x[kRun];
};

__device__ __forceinline__ uint32_t magnitude_bits(float x) {
  return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
}

__device__ __forceinline__ OwnPart load_part(const QuantizeWork& w, int64_t tile_row,
                                             int64_t tile_column) {
  OwnPart own = {fp8_tile_place(tile_row, tile_column), {}};
  const bool whole = w.packs && own.first_column + kRun <= w.columns;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    own.x[i] = {};
    if (own.first_row + i >= w.rows) continue;
    const bf16* const from = w.x + (own.first_row + i) * w.columns + own.first_column;
    if (whole) {
      own.x[i] = load_floats<kRun>(from);
      continue;
    }
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      if (own.first_column + j < w.columns) own.x[i].at[j] = to_float(from[j]);
    }
  }
  return own;
}

// Writes the codes of the thread's row i, with the scale 2^exponents[i].
template <typename Number>
__device__ __forceinline__ void store_rows(const QuantizeWork& w, const OwnPart& own,
                                           const int32_t (&exponents)[kRun]) {
  const Fp8OperandMemory& to = w.by_rows;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const int64_t row = own.first_row + i;
    if (row >= w.rows || own.first_column >= fp8_codes_stride(w.columns)) continue;
    const float inverse = inverse_power_of_two(exponents[i]);
    Fp8CodeRun codes;
#pragma unroll
    for (int j = 0; j < kRun; ++j) codes.at[j] = fp8_code<Number>(own.x[i].at[j] * inverse);
    store_pack(to.codes + row * to.codes_stride + own.first_column, codes);
    if (own.run > 0) continue;
    to.scales[own.first_column / kTile * to.scales_stride + row] = power_of_two(exponents[i]);
  }
}

// Writes the codes of the thread's column j, with the scale 2^exponents[j].
template <typename Number>
__device__ __forceinline__ void store_columns(const QuantizeWork& w, const OwnPart& own,
                                              const int32_t (&exponents)[kRun]) {
  const Fp8OperandMemory& to = w.by_columns;
  store_fp8_columns(to, own, w.rows, w.columns, [&](int j) {
    const int64_t column = own.first_column + j;
    if (own.rows == 0 && column < w.columns) {
      to.scales[own.first_row / kTile * to.scales_stride + column] = power_of_two(exponents[j]);
    }
    const float inverse = inverse_power_of_two(exponents[j]);
    Fp8CodeRun codes;
#pragma unroll
    for (int i = 0; i < kRun; ++i) codes.at[i] = fp8_code<Number>(own.x[i].at[j] * inverse);
    return codes;
  });
}

__device__ __forceinline__ uint32_t largest_of(const OwnPart& own) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
#pragma unroll
    for (int j = 0; j < kRun; ++j) largest = Max()(largest, magnitude_bits(own.x[i].at[j]));
  }
  return largest;
}

// Computes the largest magnitude of each thread block's part of x. The number of thread blocks is
// the number of threads of a block. The parts go from the end of x to its start, so that
// quantize_tiles_kernel begins with what was read last, which is still in the L2 cache. If x fits
// the L2 cache, it is read from memory only once.
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const QuantizeWork w, int64_t tiles, uint32_t* of_blocks) {
  await_previous_grid();
  uint32_t largest = 0;
  for (int64_t tile = tiles - 1 - blockIdx.x; tile >= 0; tile -= kThreads) {
    largest =
        Max()(largest,
              largest_of(load_part(w, tile / w.across * kFp8Block, tile % w.across * kFp8Block)));
  }
  largest = block_max(largest);
  if (threadIdx.x == 0) of_blocks[blockIdx.x] = largest;
}

// Quantizes x with one scale per square (kSquares) or, if `of_blocks` is not null, with one scale
// for all of x. of_blocks has the results of largest_kernel, one for each thread of a block; their
// maximum is the largest magnitude of x.
template <typename Number>
__global__ void __launch_bounds__(kThreads)
    quantize_tiles_kernel(const QuantizeWork w, const uint32_t* of_blocks) {
  await_previous_grid();
  const OwnPart own =
      load_part(w, blockIdx.x / w.across * kFp8Block, blockIdx.x % w.across * kFp8Block);
  const uint32_t largest = of_blocks != nullptr ? of_blocks[threadIdx.x] : largest_of(own);
  // The bits of a non-finite number are larger than those of any other.
  const int32_t exponent = fp8_exponent<Number>(block_max(largest));
  int32_t exponents[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) exponents[i] = exponent;
  if (w.by_rows.codes != nullptr) store_rows<Number>(w, own, exponents);
  if (w.by_columns.codes != nullptr) store_columns<Number>(w, own, exponents);
}

__global__ void __launch_bounds__(kThreads) quantize_lines_kernel(const QuantizeWork w) {
  await_previous_grid();
  const OwnPart own =
      load_part(w, blockIdx.x / w.across * kFp8Block, blockIdx.x % w.across * kFp8Block);
  if (w.by_rows.codes != nullptr) {
    int32_t exponents[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      uint32_t largest = 0;
#pragma unroll
      for (int j = 0; j < kRun; ++j) largest = Max()(largest, magnitude_bits(own.x[i].at[j]));
      exponents[i] = fp8_exponent<e4m3>(warp_max<kRunsOfLine>(largest));
    }
    store_rows<e4m3>(w, own, exponents);
  }
  if (w.by_columns.codes == nullptr) return;
  ColumnScratch& scratch = shared<ColumnScratch>();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kRun; ++i) largest = Max()(largest, magnitude_bits(own.x[i].at[j]));
    // The two halves of the warp have different rows.
    largest = Max()(largest, shfl_xor(largest, kRunsOfLine));
    if (lane < kRunsOfLine) scratch.largest[thread / kWarpSize][own.run * kRun + j] = largest;
  }
  __syncthreads();
  if (thread < kTile) {
    uint32_t largest = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      largest = Max()(largest, scratch.largest[warp][thread]);
    }
    scratch.exponents[thread] = fp8_exponent<e4m3>(largest);
  }
  __syncthreads();
  int32_t exponents[kRun];
#pragma unroll
  for (int j = 0; j < kRun; ++j) exponents[j] = scratch.exponents[own.run * kRun + j];
  store_columns<e4m3>(w, own, exponents);
}

}  // namespace

template <>
void run(const Exec& exec, const QuantizeFp8Args& a) {
  if (a.x.numel() == 0) return;
  const int64_t rows = a.x.size(0), columns = a.x.size(1);
  const QuantizeWork work = {
      .x = a.x.as<bf16>(),
      .rows = rows,
      .columns = columns,
      .across = ceil_div(columns, kFp8Block),
      .packs = columns % kRun == 0 && reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0,
      .by_rows = memory_of(a.rows),
      .by_columns = memory_of(a.columns)};
  const int64_t tiles = ceil_div(rows, kFp8Block) * work.across;
  const Fp8Operand& one = a.rows.defined() ? a.rows : a.columns;
  const simt::LaunchConfig of_tiles = {.grid = tiles, .block = kThreads};
  if (one.blocks == Fp8Blocks::kLines) {
    return simt::launch(quantize_lines_kernel, of_tiles, exec, work);
  }
  uint32_t* of_blocks = nullptr;
  if (one.blocks == Fp8Blocks::kTensor) {
    of_blocks = scratch<uint32_t>("quantize_fp8", exec, kThreads);
    simt::launch(largest_kernel, {.grid = kThreads, .block = kThreads}, exec, work, tiles,
                 of_blocks);
  }
  simt::launch(
      one.format == Fp8Format::kE5M2 ? quantize_tiles_kernel<e5m2> : quantize_tiles_kernel<e4m3>,
      of_tiles, exec, work, of_blocks);
}

}  // namespace shale::kernels::SHALE_BACKEND
