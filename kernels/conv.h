#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

enum class GemmTile : uint8_t;

// Position of the windows of a convolution or a pooling, the same along height and width: window i
// begins at pixel i * stride - padding. Pixels outside the image count as 0; a maximum ignores
// them.
struct Windows {
  int64_t stride = 1;
  int64_t padding = 0;

  // Number of windows of `kernel` pixels: floor((size + 2 padding - kernel) / stride) + 1.
  int64_t count(int64_t size, int64_t kernel) const {
    return size + 2 * padding < kernel ? 0 : (size + 2 * padding - kernel) / stride + 1;
  }
};

// A copy of a weight in the layout that a device's kernels need. The kernel calls of one op share
// it: the first call makes the copy, later calls reuse it. The owner must reset `data` when the
// weight changes. Devices that read weights in place do not use it.
struct PackedWeight {
  // returns 64-byte aligned memory, valid until the next call
  std::function<void*(size_t bytes)> allocate;
  void* data = nullptr;               // the copy; null: not made yet
  std::shared_ptr<const void> order;  // layout of the copy, private to the kernels
};

// Two-dimensional convolution (in the field's sense, that is, correlation):
//   y[n, i, j, o] = bias[o] + sum over u, v, c of
//                   x[n, i stride + u - padding, j stride + v - padding, c] weight[o, c, u, v]
// Images are dense [N, H, W, C]; products are accumulated in f32. x, weight, bias, y have one
// dtype: f32, bf16 or f16. Results do not depend on the number of threads.
//
// `tile` is for tests: the tile of a GPU thread block (k64x64 or k128x128), in place of the one
// that the time model chooses. The pointer must be valid until the call returns.
struct ConvArgs {
  View x;       // [N, H, W, C]
  View weight;  // [O, C, kh, kw]
  View bias{};  // [O]; optional
  View y;       // [N, windows.count(H, kh), windows.count(W, kw), O]
  Windows windows{};
  PackedWeight* packed = nullptr;  // optional copy of `weight`
  const GemmTile* tile = nullptr;
};

// dx = gradient of x.
struct ConvInputGradArgs {
  View dy;      // [N, OH, OW, O]
  View weight;  // [O, C, kh, kw]
  View dx;      // [N, H, W, C]
  Windows windows{};
  PackedWeight* packed = nullptr;  // optional copy of `weight`, not shared with a ConvArgs
  const GemmTile* tile = nullptr;
};

// dweight = gradient of weight: summed in f32 and rounded once; with accumulate, the sum starts
// from the existing values.
struct ConvWeightGradArgs {
  View dy;       // [N, OH, OW, O]
  View x;        // [N, H, W, C]
  View dweight;  // [O, C, kh, kw] f32 or bf16
  bool accumulate = false;
  Windows windows{};
  const GemmTile* tile = nullptr;
};

void check_args(const ConvArgs& a);
void check_args(const ConvInputGradArgs& a);
void check_args(const ConvWeightGradArgs& a);

inline Slot<ConvArgs> conv{"conv"};
inline Slot<ConvInputGradArgs> conv_input_grad{"conv_input_grad"};
inline Slot<ConvWeightGradArgs> conv_weight_grad{"conv_weight_grad"};

}  // namespace shale::kernels
