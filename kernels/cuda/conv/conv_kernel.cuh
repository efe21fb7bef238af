#pragma once

#include "shale/kernels/cuda/conv/conv_problem.h"
#include "shale/kernels/cuda/conv/conv_tile.cuh"
#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

// Convolutions as implicit GEMMs: the kernels of gemm/ with loaders that read the pixels of a
// window from the image, without writing patches. A block has a tile of the result, as in gemm/.

namespace shale::kernels::SHALE_BACKEND {

// Position of a block's tile in the result, for its epilogue.
struct ConvTile {
  int row = 0, rows = 0;  // row: first row of the tile; rows: number of rows of the result
  int col = 0, cols = 0;
};

// Writes a tile of sums plus the bias, which may be null. line(row) is the address of a row of the
// result.
template <typename T, class Config, typename Out, class Line>
__device__ __forceinline__ void store_tile(const float* sums, const ConvTile& tile, const T* bias,
                                           bool packs, const Line& line) {
  constexpr int kRuns = Config::kCols / kRun, kRowsAtOnce = Config::kThreads / kRuns;
  const int thread = static_cast<int>(threadIdx.x);
  const int in_tile = thread % kRuns * kRun, col = tile.col + in_tile;
  const int left = tile.cols - col, count = left < kRun ? left : kRun;
  if (count <= 0) return;
  const bool whole = packs && count == kRun;
  Run add{};
  if (bias != nullptr) add = load_run(bias + col, count, whole);
  for (int r = thread / kRuns; r < Config::kRows && tile.row + r < tile.rows; r += kRowsAtOnce) {
    Run run = load_run(sums + r * sums_ld<Config>() + in_tile, kRun, true);
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.at[i] += add.at[i];
    store_run(static_cast<Out*>(line(tile.row + r)) + col, run, count, whole);
  }
}

// Returns the pixel of `to` that belongs to a row of the result.
template <bool kInputGrad>
__device__ __forceinline__ int64_t pixel_of(const WindowProduct& p, const Axis& rows,
                                            const Axis& cols, int row) {
  if (!kInputGrad || p.windows.stride == 1) return row;
  const int in_image = row % (rows.count * cols.count), image = row / (rows.count * cols.count);
  const int to_row = rows.begin + rows.step * (in_image / cols.count);
  const int to_col = cols.begin + cols.step * (in_image % cols.count);
  return (int64_t{image} * p.to.rows + to_row) * p.to.cols + to_col;
}

// Position of a block's tile. The blocks of one class of pixels (see conv_kernel) have consecutive
// numbers.
struct WindowTile {
  Axis rows, cols;
  ConvTile tile;
};

template <class Config, bool kInputGrad>
__device__ __forceinline__ WindowTile tile_of(const WindowProduct& p, int block, int row_tiles,
                                              int col_tiles) {
  const int tiles = row_tiles * col_tiles;
  const int number = kInputGrad ? block / tiles : 0;
  const TileIndex index = tile_of_block(kInputGrad ? block % tiles : block, row_tiles, col_tiles);
  const int across = classes_of(p.to.cols, p.windows.stride);
  WindowTile t;
  t.rows = axis_of<kInputGrad>(p.to.rows, p.windows.kernel_rows, p.windows, number / across);
  t.cols = axis_of<kInputGrad>(p.to.cols, p.windows.kernel_cols, p.windows, number % across);
  t.tile = {.row = index.row * Config::kRows,
            .rows = p.to.images * t.rows.count * t.cols.count,
            .col = index.col * Config::kCols,
            .cols = p.to.channels};
  return t;
}

// Computes a forward convolution, or an input gradient. In an input gradient, pixels whose
// positions differ by multiples of the stride form a class: they read the same taps of the window.
template <typename T, class Config, bool kInputGrad>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    conv_kernel(const WindowProduct p, int row_tiles, int col_tiles) {
  await_previous_grid();
  using ATile = OperandTile<T, Config::kRows, Config::kDepth, true>;
  using BTile = OperandTile<T, Config::kCols, Config::kDepth, true>;
  const WindowTile at =
      tile_of<Config, kInputGrad>(p, static_cast<int>(blockIdx.x), row_tiles, col_tiles);
  if (at.tile.row >= at.tile.rows) return;
  const int k = at.rows.taps * at.cols.taps * p.from.channels;
  WindowLoader<ATile, BTile, Config::kThreads, kInputGrad> loader(p, at.rows, at.cols, at.tile.row,
                                                                  at.tile.rows, at.tile.col);
  const float* const sums = multiply_stages<T, Config, ATile, BTile>(
      (k + Config::kDepth - 1) / Config::kDepth,
      [&](T* stage) { loader.load(stage, stage + ATile::kElements); });
  const WindowTile again =
      tile_of<Config, kInputGrad>(p, opaque(static_cast<int>(blockIdx.x)), row_tiles, col_tiles);
  store_tile<T, Config, T>(sums, again.tile, static_cast<const T*>(p.bias), p.packs, [&](int row) {
    const int64_t pixel = pixel_of<kInputGrad>(p, again.rows, again.cols, row);
    return static_cast<T*>(p.to.data) + pixel * p.to.channels;
  });
}

// Computes a weight gradient.
template <typename T, class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    conv_weight_grad_kernel(const WeightProduct p, int row_tiles, int col_tiles) {
  await_previous_grid();
  using ATile = OperandTile<T, Config::kRows, Config::kDepth, false>;
  using BTile = OperandTile<T, Config::kCols, Config::kDepth, false>;
  const auto tile_at = [&](int block) {
    const TileIndex index = tile_of_block(block, row_tiles, col_tiles);
    return ConvTile{.row = index.row * Config::kRows,
                    .rows = p.outs,
                    .col = index.col * Config::kCols,
                    .cols = p.depth};
  };
  const ConvTile tile = tile_at(static_cast<int>(blockIdx.x));
  const int part = static_cast<int>(blockIdx.z);
  const int pixels = p.dy.images * p.by_image.value, begin = part * p.split_pixels;
  int left = pixels - begin < p.split_pixels ? pixels - begin : p.split_pixels;
  const Matrix dy = {.data = p.dy.data, .ld = p.dy.channels};
  TileLoader<ATile, Config::kThreads> a_loader(dy, dy.data, tile.row, p.dy.channels, begin);
  PixelLoader<BTile, Config::kThreads> b_loader(p, tile.col, begin);
  const float* const sums = multiply_stages<T, Config, ATile, BTile>(
      (left + Config::kDepth - 1) / Config::kDepth, [&](T* stage) {
        a_loader.load(stage, left);
        b_loader.load(stage + ATile::kElements, left);
        left -= Config::kDepth;
      });
  float* const to = p.parts + int64_t{part} * p.outs * p.depth;
  store_tile<T, Config, float>(sums, tile_at(opaque(static_cast<int>(blockIdx.x))),
                               static_cast<const T*>(nullptr), true,
                               [&](int row) { return to + int64_t{row} * p.depth; });
}

// ---- Launches ----

template <typename T, GemmTile kTile, bool kInputGrad>
void launch_window_tile(const Exec& exec, const WindowProduct& p) {
  using Config = GemmConfig<T, kTile>;
  const int stride = kInputGrad ? p.windows.stride : 1;
  const int64_t rows = ceil_div(p.to.rows, stride), cols = ceil_div(p.to.cols, stride);
  const int64_t classes = int64_t{classes_of(p.to.rows, stride)} * classes_of(p.to.cols, stride);
  const int64_t row_tiles = ceil_div(p.to.images * rows * cols, Config::kRows);
  const int64_t col_tiles = ceil_div(p.to.channels, Config::kCols);
  simt::launch(conv_kernel<T, Config, kInputGrad>,
               {.grid = row_tiles * col_tiles * classes,
                .block = Config::kThreads,
                .smem_bytes = gemm_shared_bytes<Config, T>()},
               exec, p, static_cast<int>(row_tiles), static_cast<int>(col_tiles));
}

template <typename T, bool kInputGrad>
void launch_windows(const Exec& exec, const WindowProduct& p) {
  if (p.tile == GemmTile::k128x128) {
    return launch_window_tile<T, GemmTile::k128x128, kInputGrad>(exec, p);
  }
  launch_window_tile<T, GemmTile::k64x64, kInputGrad>(exec, p);
}

template <typename T, GemmTile kTile>
void launch_weight_grad_tile(const Exec& exec, const WeightProduct& p) {
  using Config = GemmConfig<T, kTile>;
  const int64_t row_tiles = ceil_div(p.outs, Config::kRows);
  const int64_t col_tiles = ceil_div(p.depth, Config::kCols);
  simt::launch(conv_weight_grad_kernel<T, Config>,
               {.grid = {row_tiles * col_tiles, 1, p.splits},
                .block = Config::kThreads,
                .smem_bytes = gemm_shared_bytes<Config, T>()},
               exec, p, static_cast<int>(row_tiles), static_cast<int>(col_tiles));
}

template <typename T>
void launch_weight_grad(const Exec& exec, const WeightProduct& p) {
  if (p.tile == GemmTile::k128x128) {
    return launch_weight_grad_tile<T, GemmTile::k128x128>(exec, p);
  }
  launch_weight_grad_tile<T, GemmTile::k64x64>(exec, p);
}

}  // namespace shale::kernels::SHALE_BACKEND
