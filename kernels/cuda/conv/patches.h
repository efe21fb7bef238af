#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// The sizes of a convolution, for the copies around its products. A patch is the pixels of a
// window: [kernel_rows, kernel_cols, channels], and zeros up to padded_depth.
struct PatchShape {
  int rows, cols, channels;  // of an image
  int out_rows, out_cols;    // windows
  int kernel_rows, kernel_cols;
  int stride, padding;
  int depth, padded_depth;  // elements of a patch
};

// patches [images * windows, padded_depth] of x [images, rows, cols, channels], of its dtype;
// pixels outside of an image are 0.
void gather_patches(const Exec& exec, const PatchShape& shape, const View& x, void* patches);

// dx = of each pixel the sum, in f32, of what stands for it in patches, window after window.
void add_patches(const Exec& exec, const PatchShape& shape, const float* patches, const View& dx);

// packed [O, padded_depth] of weight [O, channels, kernel_rows, kernel_cols], of its dtype, in the
// order of a patch.
void pack_weights(const Exec& exec, const PatchShape& shape, const View& weight, void* packed);

// The way back of a gradient in f32: dweight = it, or += it, rounded once.
void unpack_weights(const Exec& exec, const PatchShape& shape, const float* packed,
                    const View& dweight, bool accumulate);

}  // namespace shale::kernels::SHALE_BACKEND
