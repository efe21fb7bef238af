#include "shale/kernels/fp8.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// A block has a tile of kFp8Block rows and columns of x in its registers: half a warp has 8 rows, a
// thread of it 8 neighbouring columns, 16 bytes of each row. Codes of rows go straight to memory, 8
// bytes of a thread side by side with its neighbours'. Those of the transpose, of which a thread
// has 8 of a line, go through shared memory, so that half a warp writes the tile's part of a line.
// The bits are the CPU's.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kTile = static_cast<int>(kFp8Block);
constexpr int kThreads = 256, kWarps = kThreads / kWarpSize;
constexpr int kRun = 8;                    // rows of a thread, and columns
constexpr int kRunsOfLine = kTile / kRun;  // half a warp
constexpr int kHalfWarps = kThreads / kRunsOfLine;

using CodeRun = Pack<uint8_t, kRun>;

struct OperandMemory {
  uint8_t* codes;  // null where it is left out
  float* scales;
  int64_t codes_stride, scales_stride;
};

struct QuantizeWork {
  const bf16* x;
  int64_t rows, columns, across;  // across: tiles side by side
  bool packs;                     // rows may be read in packs
  OperandMemory by_rows, by_columns;
};

struct ColumnScratch {
  uint32_t largest[kWarps][kTile];
  int32_t exponents[kTile];
};

// Where 8 codes of a line of the transpose lie: permuted by the line, so that neither the threads
// that write one nor those that read one meet in a bank.
struct TransposeScratch {
  CodeRun runs[kTile][kRunsOfLine];
  __device__ __forceinline__ CodeRun& at(int line, int run) {
    return runs[line][run ^ line / kRun % kRunsOfLine];
  }
};

// What a thread has of the tile.
struct OwnPart {
  int run = static_cast<int>(threadIdx.x) % kRunsOfLine;   // of columns
  int rows = static_cast<int>(threadIdx.x) / kRunsOfLine;  // of rows, 8 from rows * 8 on
  int64_t first_row, first_column;                         // of x
  Floats<kRun> x[kRun];
};

__device__ __forceinline__ uint32_t magnitude_bits(float x) {
  return std::bit_cast<uint32_t>(x) & 0x7fffffffu;
}

__device__ __forceinline__ OwnPart load_part(const QuantizeWork& w, int64_t tile_row,
                                             int64_t tile_column) {
  OwnPart own;
  own.first_row = tile_row + own.rows * kRun;
  own.first_column = tile_column + own.run * kRun;
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

// Row i of the thread's with the scale 2^exponents[i].
template <typename Number>
__device__ __forceinline__ void store_rows(const QuantizeWork& w, const OwnPart& own,
                                           const int32_t (&exponents)[kRun]) {
  const OperandMemory& to = w.by_rows;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const int64_t row = own.first_row + i;
    if (row >= w.rows || own.first_column >= w.columns) continue;
    const float inverse = inverse_power_of_two(exponents[i]);
    CodeRun codes;
#pragma unroll
    for (int j = 0; j < kRun; ++j) codes.at[j] = fp8_code<Number>(own.x[i].at[j] * inverse);
    store_pack(to.codes + row * to.codes_stride + own.first_column, codes);
    if (own.run > 0) continue;
    to.scales[own.first_column / kTile * to.scales_stride + row] = power_of_two(exponents[i]);
  }
}

// Column j of the thread's with the scale 2^exponents[j].
template <typename Number>
__device__ __forceinline__ void store_columns(const QuantizeWork& w, const OwnPart& own,
                                              const int32_t (&exponents)[kRun]) {
  const OperandMemory& to = w.by_columns;
  TransposeScratch& scratch = shared<TransposeScratch>();
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const float inverse = inverse_power_of_two(exponents[j]);
    CodeRun codes;
#pragma unroll
    for (int i = 0; i < kRun; ++i) codes.at[i] = fp8_code<Number>(own.x[i].at[j] * inverse);
    store_shared_pack(scratch.at(own.run * kRun + j, own.rows).at, codes);
    const int64_t column = own.first_column + j;
    if (own.rows > 0 || column >= w.columns) continue;
    to.scales[own.first_row / kTile * to.scales_stride + column] = power_of_two(exponents[j]);
  }
  __syncthreads();
  // From here on the thread has other columns: a run of rows of every 16th.
  const int64_t tile_row = own.first_row - own.rows * kRun;
  const int64_t tile_column = own.first_column - own.run * kRun;
  const int64_t row = tile_row + own.run * kRun;
  if (row >= w.rows) return;
#pragma unroll
  for (int line = own.rows; line < kTile; line += kHalfWarps) {
    if (tile_column + line >= w.columns) return;
    store_pack(to.codes + (tile_column + line) * to.codes_stride + row,
               load_pack<kRun>(scratch.at(line, own.run).at));
  }
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

// The largest magnitude of each block's part of x, of as many blocks as a block has threads.
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const QuantizeWork w, int64_t tiles, uint32_t* of_blocks) {
  await_previous_grid();
  uint32_t largest = 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += kThreads) {
    largest =
        Max()(largest,
              largest_of(load_part(w, tile / w.across * kFp8Block, tile % w.across * kFp8Block)));
  }
  largest = block_max(largest);
  if (threadIdx.x == 0) of_blocks[blockIdx.x] = largest;
}

// Of squares; or, where `of_blocks` is not null, of all of x, whose largest magnitude is the
// largest of those, one for each thread.
template <typename Number>
__global__ void __launch_bounds__(kThreads)
    quantize_tiles_kernel(const QuantizeWork w, const uint32_t* of_blocks) {
  await_previous_grid();
  const OwnPart own =
      load_part(w, blockIdx.x / w.across * kFp8Block, blockIdx.x % w.across * kFp8Block);
  const uint32_t largest = of_blocks != nullptr ? of_blocks[threadIdx.x] : largest_of(own);
  // Of bits what is not finite is the largest.
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
    largest = Max()(largest, shfl_xor(largest, kRunsOfLine));  // of the warp's two runs of rows
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

OperandMemory memory_of(const Fp8Operand& operand) {
  if (!operand.defined()) return {};
  return {operand.codes.as<uint8_t>(), operand.scales.as<float>(), operand.codes.stride(0),
          operand.scales.stride(0)};
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
