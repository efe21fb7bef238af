#pragma once

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Mapping of a thread block that sums columns. Each of its kTileLines warps, called a line, takes
// every kTileLines-th row. A lane owns kCount neighbouring columns.
inline constexpr int kTileLines = 8;
inline constexpr int kTileThreads = kTileLines * kWarpSize;

template <int kCount>
inline constexpr int kTileColumns = kWarpSize* kCount;

// Returns the number of rows per thread block. It depends only on the shape. It gives enough blocks
// for any GPU, with enough rows each.
inline int64_t rows_of_tile(int64_t rows) {
  constexpr int64_t kFewest = 64, kMostBlocks = 128;
  const int64_t wanted = ceil_div(ceil_div(rows, kMostBlocks), kTileLines) * kTileLines;
  return wanted > kFewest ? wanted : kFewest;
}

template <int kCount>
struct ColumnTile {
  float at[kTileLines][kTileColumns<kCount>];
};

// Adds the sums of the block's lines for each column, in order. Writes them to out[column], for the
// columns from `first` on that are below `cols`. All threads of the block must call this function,
// once.
template <int kCount>
__device__ __forceinline__ void store_column_sums(const Floats<kCount>& sum, int64_t first,
                                                  int64_t cols, float* out) {
  const int lane = threadIdx.x % kWarpSize, line = threadIdx.x / kWarpSize;
  auto& tile = shared<ColumnTile<kCount>>();
#pragma unroll
  for (int i = 0; i < kCount; ++i) tile.at[line][i * kWarpSize + lane] = sum.at[i];
  __syncthreads();
  // Column c + i of lane `from` is at i * kWarpSize + from in the tile.
  for (int at = threadIdx.x; at < kTileColumns<kCount>; at += kTileThreads) {
    const int from = at % kWarpSize, i = at / kWarpSize;
    const int64_t column = first + from * kCount + i;
    if (column >= cols) continue;
    float total = tile.at[0][at];
    for (int k = 1; k < kTileLines; ++k) total += tile.at[k][at];
    out[column] = total;
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
