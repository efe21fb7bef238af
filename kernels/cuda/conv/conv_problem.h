#pragma once

#include <cstdint>

#include "shale/base/exec.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// An image in memory, [images, rows, cols, channels].
struct Pixels {
  void* data = nullptr;
  int images = 0, rows = 0, cols = 0, channels = 0;
};

// Position of windows on the image, as in Windows, and their size.
struct WindowShape {
  int kernel_rows = 1, kernel_cols = 1;
  int stride = 1, padding = 0;
};

// A convolution or an input gradient as a GEMM. Its first operand is never stored. A row of it
// belongs to a pixel of `to`, and k runs over all channels of the pixels of `from` in that pixel's
// window. `from` and the weights are 16-byte aligned, and their channels are whole packs.
struct WindowProduct {
  Pixels from, to;
  const void* weights = nullptr;  // [to.channels, kernel rows, kernel cols, from.channels]
  const void* bias = nullptr;     // [to.channels], or null
  WindowShape windows;
  bool packs = false;  // lines of `to` and the bias may be accessed in packs
  GemmTile tile = GemmTile::k64x64;
};

// Numbers for dividing integers below 2^31 by `value`, which is known before the launch: T.
// Granlund and P. Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994,
// figure 4.1.
struct Divisor {
  uint32_t factor = 1, shift = 0;
  int value = 1;
};

// A weight gradient as a GEMM with the result [outs, depth], summed over all pixels of dy, which
// are divided into parts. A column is a channel of x at one position of the window. dy and x are
// 16-byte aligned, and their channels are whole packs.
struct WeightProduct {
  Pixels x, dy;
  WindowShape windows;
  Divisor by_image, by_row;  // for dividing by the number of dy's pixels per image, and per row
  float* parts = nullptr;    // [splits, outs, depth]: the sums of each part of the pixels
  int outs = 0, depth = 0;   // depth = kernel rows * kernel cols * x.channels
  int split_pixels = 0;      // pixels per part
  int splits = 1;
  GemmTile tile = GemmTile::k64x64;
};

// Launch a convolution with the tile k64x64 or k128x128; other tiles have no kernel.
void launch_conv_f32(const Exec& exec, const WindowProduct& p);
void launch_conv_bf16(const Exec& exec, const WindowProduct& p);
void launch_conv_f16(const Exec& exec, const WindowProduct& p);

void launch_conv_input_grad_f32(const Exec& exec, const WindowProduct& p);
void launch_conv_input_grad_bf16(const Exec& exec, const WindowProduct& p);
void launch_conv_input_grad_f16(const Exec& exec, const WindowProduct& p);

void launch_conv_weight_grad_f32(const Exec& exec, const WeightProduct& p);
void launch_conv_weight_grad_bf16(const Exec& exec, const WeightProduct& p);
void launch_conv_weight_grad_f16(const Exec& exec, const WeightProduct& p);

}  // namespace shale::kernels::SHALE_BACKEND
