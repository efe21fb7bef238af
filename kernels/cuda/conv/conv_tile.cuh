#pragma once

#include "shale/kernels/cuda/conv/conv_problem.h"
#include "shale/kernels/cuda/gemm/gemm_tile.cuh"

// Loaders of a convolution's operands, similar to TileLoader. They copy chunks of 16 bytes, which
// are channels of one pixel.

namespace shale::kernels::SHALE_BACKEND {

__device__ __forceinline__ int quotient(int number, const Divisor& by) {
  const auto n = static_cast<uint32_t>(number);
  const auto high = static_cast<uint32_t>(uint64_t{n} * by.factor >> 32);
  return static_cast<int>((high + n) >> by.shift);
}

// Pixels of one axis of `to` that a block computes, and the pixels of the image `from` that they
// read. Pixel number i of the block is begin + step * i, for i < count. For the first tap it reads
// pixel from + from_step * i. For each further tap it reads the next pixel (in the input gradient,
// the previous pixel). The taps are tap_begin, tap_begin + tap_step, and so on; there are `taps` of
// them.
struct Axis {
  int begin, step, count;
  int from, from_step;
  int taps, tap_begin, tap_step;
};

// Returns the number of classes into which the pixels of an axis are divided, see conv_kernel.
__host__ __device__ __forceinline__ int classes_of(int size, int stride) {
  return size < stride ? size : stride;
}

// Returns class `number` of an axis in the input gradient. dx at h is the sum of dy at
// (h + padding - u) / stride over the taps u for which this quotient is an integer.
template <bool kInputGrad>
__device__ __forceinline__ Axis axis_of(int size, int kernel, const WindowShape& w, int number) {
  if (!kInputGrad) {
    return {.begin = 0,
            .step = 1,
            .count = size,
            .from = -w.padding,
            .from_step = w.stride,
            .taps = kernel,
            .tap_begin = 0,
            .tap_step = 1};
  }
  const int first = (number + w.padding) % w.stride;
  return {.begin = number,
          .step = w.stride,
          .count = (size - 1 - number) / w.stride + 1,
          .from = (number + w.padding) / w.stride,
          .from_step = 1,
          .taps = first < kernel ? (kernel - 1 - first) / w.stride + 1 : 0,
          .tap_begin = first,
          .tap_step = w.stride};
}

// Copies tiles of both operands of a WindowProduct to shared memory. Chunks of the two operands at
// the same k belong to the same tap and channels.
template <class ATile, class BTile, int kThreads, bool kInputGrad>
class WindowLoader {
  using T = typename ATile::Element;
  static constexpr int kChunk = ATile::kChunk, kLineChunks = ATile::kLineChunks;
  static constexpr int kLineStep = kThreads / kLineChunks;  // lines between two chunks of a thread
  static constexpr int kACopies = ATile::kLines / kLineStep, kBCopies = BTile::kLines / kLineStep;
  static constexpr int kTileStep = kLineStep * kLineChunks * kChunk;
  static_assert(kLineChunks == BTile::kLineChunks && ATile::kDepth == BTile::kDepth);
  static_assert(ATile::kLines % kLineStep == 0 && BTile::kLines % kLineStep == 0);
  static_assert(kLineStep % 8 == 0, "the chunks of a thread have one permutation");

 public:
  // row, col: first row and column of the tile in the result, which has row_end rows
  __device__ __forceinline__ WindowLoader(const WindowProduct& p, const Axis& rows,
                                          const Axis& cols, int row, int row_end, int col)
      : p_(p), tap_rows_(rows.taps), tap_cols_(cols.taps) {
    const int line = static_cast<int>(threadIdx.x) / kLineChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kLineChunks;
    to_ = ATile::offset(line, chunk);
    channel_ = chunk * kChunk;
    first_tap_ = rows.tap_begin * p.windows.kernel_cols + cols.tap_begin;
#pragma unroll
    for (int i = 0; i < kACopies; ++i) {
      const int number = row + line + i * kLineStep;
      const int in_image = number % (rows.count * cols.count);
      const int image = number / (rows.count * cols.count);
      const int at_row = rows.from + rows.from_step * (in_image / cols.count);
      const int at_col = cols.from + cols.from_step * (in_image % cols.count);
      base_[i] = (image * p.from.rows + at_row) * p.from.cols + at_col;
      corner_[i] = number < row_end ? at_row * 65536 + (at_col & 0xffff) : kOutside;
    }
    lines_left_ = p.to.channels - col - line;
    const int64_t tap_count = int64_t{p.windows.kernel_rows} * p.windows.kernel_cols;
    weights_ = static_cast<const T*>(p.weights) + (col + line) * tap_count * p.from.channels;
    settle();
  }

  // Issues the copies of the next kDepth elements of k.
  __device__ __forceinline__ void load(T* a, T* b) {
    const bool inside = tap_row_ < tap_rows_;
    const int down = kInputGrad ? -tap_row_ : tap_row_, right = kInputGrad ? -tap_col_ : tap_col_;
    const int shift = down * p_.from.cols + right;
    const T* const from = static_cast<const T*>(p_.from.data);
#pragma unroll
    for (int i = 0; i < kACopies; ++i) {
      const int row = (corner_[i] >> 16) + down;
      const int col = static_cast<int16_t>(corner_[i] & 0xffff) + right;
      const bool valid = inside && static_cast<uint32_t>(row) < uint32_t(p_.from.rows) &&
                         static_cast<uint32_t>(col) < uint32_t(p_.from.cols);
      const int64_t pixel = base_[i] + shift;
      cp_async<16>(a + to_ + i * kTileStep,
                   valid ? from + pixel * p_.from.channels + channel_ : from, valid);
    }
    const int step = kInputGrad ? p_.windows.stride : 1;
    const int tap = first_tap_ + step * (tap_row_ * p_.windows.kernel_cols + tap_col_);
    const T* const weights = weights_ + tap * p_.from.channels + channel_;
    const int ld = p_.windows.kernel_rows * p_.windows.kernel_cols * p_.from.channels;
#pragma unroll
    for (int i = 0; i < kBCopies; ++i) {
      const bool valid = inside && i * kLineStep < lines_left_;
      cp_async<16>(
          b + to_ + i * kTileStep,
          valid ? weights + int64_t{i * kLineStep} * ld : static_cast<const T*>(p_.weights), valid);
    }
    channel_ += ATile::kDepth;
    settle();
  }

 private:
  static constexpr int kOutside = -32768 * 65536;  // a row above every image, so the chunk is zero

  // Advances to the tap that channel_ belongs to.
  __device__ __forceinline__ void settle() {
    while (channel_ >= p_.from.channels && tap_row_ < tap_rows_) {
      channel_ -= p_.from.channels;
      if (++tap_col_ == tap_cols_) tap_col_ = 0, ++tap_row_;
    }
  }

  const WindowProduct& p_;
  const T* weights_;                         // first line of weights of this thread
  int base_[kACopies];                       // per line: the pixel that the first tap reads
  // per line: row and column of the pixel that the first tap reads, 16 bits each
  int corner_[kACopies];
  int channel_, tap_row_ = 0, tap_col_ = 0;  // position of the next copy
  int tap_rows_, tap_cols_, first_tap_;
  int lines_left_;  // number of lines of weights from the thread's first line to the end
  int to_;          // offset of the thread's first chunk in a tile
};

// Copies tiles of x, an operand of a WeightProduct, to shared memory. A line is a pixel of dy. Its
// chunks are columns of the result, the same for all lines.
template <class Tile, int kThreads>
class PixelLoader {
  using T = typename Tile::Element;
  static constexpr int kChunk = Tile::kChunk, kLineChunks = Tile::kLineChunks;
  static constexpr int kLineStep = kThreads / kLineChunks;  // lines between two chunks of a thread
  static constexpr int kCopies = Tile::kLines / kLineStep;
  static_assert(!Tile::kAlongK && Tile::kLines % kLineStep == 0 && kLineStep % 8 == 0);

 public:
  // `col` is the tile's first column, `pixel` the first pixel to load.
  __device__ __forceinline__ PixelLoader(const WeightProduct& p, int col, int pixel) : p_(p) {
    line_ = static_cast<int>(threadIdx.x) / kLineChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kLineChunks;
    to_ = Tile::offset(line_, chunk);
    const int column = col + chunk * kChunk;
    inside_ = column < p.depth;
    const int tap = column / p.x.channels;
    channel_ = column - tap * p.x.channels;
    down_ = tap / p.windows.kernel_cols - p.windows.padding;
    right_ = tap % p.windows.kernel_cols - p.windows.padding;
    pixel_ = pixel + line_;
  }

  // Issues the copies of the next kDepth pixels, of which the first `left` belong to this block's
  // part.
  __device__ __forceinline__ void load(T* tile, int left) {
    const T* const from = static_cast<const T*>(p_.x.data);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int pixel = pixel_ + i * kLineStep;
      const int image = quotient(pixel, p_.by_image);
      const int in_image = pixel - image * p_.by_image.value;
      const int out_row = quotient(in_image, p_.by_row);
      const int out_col = in_image - out_row * p_.by_row.value;
      const int row = out_row * p_.windows.stride + down_;
      const int col = out_col * p_.windows.stride + right_;
      const bool valid = inside_ && line_ + i * kLineStep < left &&
                         static_cast<uint32_t>(row) < uint32_t(p_.x.rows) &&
                         static_cast<uint32_t>(col) < uint32_t(p_.x.cols);
      const int64_t at = (image * p_.x.rows + row) * p_.x.cols + col;
      cp_async<16>(tile + to_ + i * kLineStep * kLineChunks * kChunk,
                   valid ? from + at * p_.x.channels + channel_ : from, valid);
    }
    pixel_ += Tile::kDepth;
  }

 private:
  const WeightProduct& p_;
  int line_, to_;     // line of the thread's first chunk, and the chunk's offset in a tile
  int pixel_;         // first pixel of the next copy
  int channel_;       // channel of the thread's chunks
  int down_, right_;  // offset of the tap from the first pixel of the window, in pixels
  bool inside_;
};

}  // namespace shale::kernels::SHALE_BACKEND
