#include "shale/kernels/fp8_shard.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/fp8_tile.cuh"
#include "shale/kernels/cuda/run.h"

// Kernels for sharded fp8 weights. A thread has a run: neighbouring elements of a row that share a
// scale. In common models the length of a row is a multiple of kFp8Block. Then a run has 8
// elements, and half a warp has the kFp8Block elements of a row that share a scale. Otherwise a run
// has one element. The bits equal those of the CPU.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kLongRun = 8;
constexpr int kRunsOfBlock = static_cast<int>(kFp8Block) / kLongRun;

// Elements [first, first + count) of a matrix.
struct ShardRange {
  int64_t first, count, columns;
  Fp8BlockIndex index;

  __device__ __forceinline__ int64_t block_of(int64_t at) const {
    const int64_t row = (first + at) / columns;
    return index.of(row, first + at - row * columns);
  }
};

template <int kRun>
__device__ __forceinline__ int64_t own_run() {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kRun;
}

// Loads x rounded to bf16.
template <int kRun>
__device__ __forceinline__ Floats<kRun> load_rounded(const float* x) {
  constexpr int kPack = kRun < 4 ? kRun : 4;
  Floats<kRun> rounded;
#pragma unroll
  for (int i = 0; i < kRun; i += kPack) {
    const Floats<kPack> part = to_floats(from_floats<bf16>(load_floats<kPack>(x + i)));
#pragma unroll
    for (int j = 0; j < kPack; ++j) rounded.at[i + j] = part.at[j];
  }
  return rounded;
}

template <int kRun>
__global__ void __launch_bounds__(kThreads)
    fp8_largest_kernel(const float* x, ShardRange range, int32_t* largest) {
  await_previous_grid();
  const int64_t at = own_run<kRun>();
  uint32_t most = 0;
  if (at < range.count) {
    const Floats<kRun> values = load_rounded<kRun>(x + at);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      most = Max()(most, std::bit_cast<uint32_t>(values.at[i]) & 0x7fffffffu);
    }
  }
  if constexpr (kRun == kLongRun) {
    most = warp_max<kRunsOfBlock>(most);
    if (threadIdx.x % kRunsOfBlock != 0) return;
  }
  if (at < range.count) atomic_max(largest + range.block_of(at), static_cast<int32_t>(most));
}

template <int kRun>
__global__ void __launch_bounds__(kThreads)
    fp8_encode_kernel(const float* x, ShardRange range, const int32_t* largest, uint8_t* codes) {
  await_previous_grid();
  const int64_t at = own_run<kRun>();
  if (at >= range.count) return;
  const Floats<kRun> values = load_rounded<kRun>(x + at);
  const auto bits = static_cast<uint32_t>(largest[range.block_of(at)]);
  const float inverse = inverse_power_of_two(fp8_exponent<e4m3>(bits));
  Pack<uint8_t, kRun> run;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    run.at[i] = fp8_code<e4m3>(values.at[i] * inverse);
  }
  store_pack(codes + at, run);
}

template <int kRun>
__global__ void __launch_bounds__(kThreads)
    fp8_decode_kernel(const uint8_t* codes, ShardRange range, const int32_t* largest, bf16* y) {
  await_previous_grid();
  const int64_t at = own_run<kRun>();
  if (at >= range.count) return;
  const Pack<uint8_t, kRun> run = load_pack<kRun>(codes + at);
  const auto bits = static_cast<uint32_t>(largest[range.block_of(at)]);
  const float scale = power_of_two(fp8_exponent<e4m3>(bits));
  Floats<kRun> values;
#pragma unroll
  for (int i = 0; i < kRun; ++i) values.at[i] = decoded(e4m3{run.at[i]}) * scale;
  store_floats(y + at, values);  // the conversion is exact
}

// ---- Operands: a block has a tile (fp8_tile.cuh) ----

struct OperandsWork {
  const uint8_t* codes;
  int64_t rows, columns, across;  // across: number of tiles side by side in the matrix
  bool packs;                     // rows of codes may be read in packs
  bool copies_rows;
  Fp8BlockIndex index;
  const int32_t* largest;
  Fp8OperandMemory by_rows, by_columns;
};

// Loads the codes of eight rows of eight columns; zeros outside of the matrix.
__device__ __forceinline__ void load_codes(const OperandsWork& w, const Fp8TilePlace& own,
                                           Fp8CodeRun (&codes)[kFp8Run]) {
  const bool whole = w.packs && own.first_column + kFp8Run <= w.columns;
#pragma unroll
  for (int i = 0; i < kFp8Run; ++i) {
    codes[i] = {};
    if (own.first_row + i >= w.rows) continue;
    const uint8_t* const from = w.codes + (own.first_row + i) * w.columns + own.first_column;
    if (whole) {
      codes[i] = load_pack<kFp8Run>(from);
      continue;
    }
#pragma unroll
    for (int j = 0; j < kFp8Run; ++j) {
      if (own.first_column + j < w.columns) codes[i].at[j] = from[j];
    }
  }
}

__device__ __forceinline__ void store_rows(const OperandsWork& w, const Fp8TilePlace& own,
                                           const Fp8CodeRun (&codes)[kFp8Run], float scale) {
  const Fp8OperandMemory& to = w.by_rows;
#pragma unroll
  for (int i = 0; i < kFp8Run; ++i) {
    const int64_t row = own.first_row + i;
    if (row >= w.rows || own.first_column >= fp8_codes_stride(w.columns)) continue;
    if (w.copies_rows) store_pack(to.codes + row * to.codes_stride + own.first_column, codes[i]);
    if (own.run > 0) continue;
    to.scales[own.first_column / kFp8Block * to.scales_stride + row] = scale;
  }
}

__global__ void __launch_bounds__(kFp8TileThreads) fp8_operands_kernel(const OperandsWork w) {
  await_previous_grid();
  const int64_t tile_row = blockIdx.x / w.across * kFp8Block;
  const int64_t tile_column = blockIdx.x % w.across * kFp8Block;
  const Fp8TilePlace own = fp8_tile_place(tile_row, tile_column);
  const auto bits = static_cast<uint32_t>(w.largest[w.index.of(tile_row, tile_column)]);
  const float scale = power_of_two(fp8_exponent<e4m3>(bits));
  Fp8CodeRun codes[kFp8Run] = {};
  if (w.copies_rows || w.by_columns.codes != nullptr) load_codes(w, own, codes);
  if (w.by_rows.codes != nullptr) store_rows(w, own, codes, scale);
  if (w.by_columns.codes == nullptr) return;
  const Fp8OperandMemory& to = w.by_columns;
  store_fp8_columns(to, own, w.rows, w.columns, [&](int j) {
    const int64_t column = own.first_column + j;
    if (own.rows == 0 && column < w.columns) {
      to.scales[own.first_row / kFp8Block * to.scales_stride + column] = scale;
    }
    Fp8CodeRun line;
#pragma unroll
    for (int i = 0; i < kFp8Run; ++i) line.at[i] = codes[i].at[j];
    return line;
  });
}

// Calls launch.operator()<kRun>() with the number of elements in a thread's run.
template <typename Launch>
void with_run(const ShardRange& range, std::initializer_list<const void*> memory,
              const Launch& launch) {
  bool is_long =
      range.columns % kFp8Block == 0 && range.first % kFp8Block == 0 && range.count % kLongRun == 0;
  for (const void* p : memory) is_long = is_long && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  if (is_long) return launch.template operator()<kLongRun>();
  launch.template operator()<1>();
}

template <int kRun>
simt::LaunchConfig threads_for(const ShardRange& range) {
  return {.grid = ceil_div(range.count, int64_t{kThreads} * kRun), .block = kThreads};
}

}  // namespace

template <>
void run(const Exec& exec, const Fp8LargestArgs& a) {
  if (a.x.numel() == 0) return;
  const ShardRange range = {a.first, a.x.numel(), a.columns, Fp8BlockIndex(a.largest)};
  with_run(range, {a.x.data}, [&]<int kRun>() {
    simt::launch(fp8_largest_kernel<kRun>, threads_for<kRun>(range), exec, a.x.as<float>(), range,
                 a.largest.as<int32_t>());
  });
}

template <>
void run(const Exec& exec, const Fp8EncodeArgs& a) {
  if (a.x.numel() == 0) return;
  const ShardRange range = {a.first, a.x.numel(), a.columns, Fp8BlockIndex(a.largest)};
  with_run(range, {a.x.data, a.codes.data}, [&]<int kRun>() {
    simt::launch(fp8_encode_kernel<kRun>, threads_for<kRun>(range), exec, a.x.as<float>(), range,
                 a.largest.as<int32_t>(), a.codes.as<uint8_t>());
  });
}

template <>
void run(const Exec& exec, const Fp8DecodeArgs& a) {
  if (a.y.numel() == 0) return;
  const ShardRange range = {0, a.y.numel(), a.y.size(1), Fp8BlockIndex(a.largest)};
  with_run(range, {a.codes.data, a.y.data}, [&]<int kRun>() {
    simt::launch(fp8_decode_kernel<kRun>, threads_for<kRun>(range), exec, a.codes.as<uint8_t>(),
                 range, a.largest.as<int32_t>(), a.y.as<bf16>());
  });
}

template <>
void run(const Exec& exec, const Fp8OperandsArgs& a) {
  if (a.codes.numel() == 0) return;
  const int64_t rows = a.codes.size(0), columns = a.codes.size(1);
  const OperandsWork work = {
      .codes = a.codes.as<uint8_t>(),
      .rows = rows,
      .columns = columns,
      .across = ceil_div(columns, kFp8Block),
      .packs = columns % kFp8Run == 0 && reinterpret_cast<uintptr_t>(a.codes.data) % kFp8Run == 0,
      .copies_rows = a.rows.defined() && a.rows.codes.data != a.codes.data,
      .index = Fp8BlockIndex(a.largest),
      .largest = a.largest.as<int32_t>(),
      .by_rows = memory_of(a.rows),
      .by_columns = memory_of(a.columns)};
  simt::launch(fp8_operands_kernel,
               {.grid = ceil_div(rows, kFp8Block) * work.across, .block = kFp8TileThreads}, exec,
               work);
}

}  // namespace shale::kernels::SHALE_BACKEND
