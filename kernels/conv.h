#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

enum class GemmTile : uint8_t;

// How the windows of a convolution or a pooling lie on an image, alike in both directions: window i
// begins at pixel i * stride - padding, where pixels outside of the image count as 0 (of a maximum,
// as not there).
struct Windows {
  int64_t stride = 1;
  int64_t padding = 0;

  // How many windows of `kernel` pixels there are: floor((size + 2 padding - kernel) / stride) + 1.
  int64_t count(int64_t size, int64_t kernel) const {
    return size + 2 * padding < kernel ? 0 : (size + 2 * padding - kernel) / stride + 1;
  }
};

// A weight in the order in which a device's kernels take it, for the calls of one op that share the
// weight: the first makes the copy, the others find it. Who owns it resets `data` when the weight
// has changed. Devices that take weights as they are do not touch it.
struct PackedWeight {
  std::function<void*(size_t bytes)> allocate;  // 64-byte aligned; valid until it is called again
  void* data = nullptr;                         // null: the copy is to be made
  std::shared_ptr<const void> order;            // of the copy; the kernels' own
};

// Two-dimensional convolution, by which the field means correlation:
//   y[n, i, j, o] = bias[o] + sum over u, v, c of
//                   x[n, i stride + u - padding, j stride + v - padding, c] weight[o, c, u, v]
// Images are dense [N, H, W, C]; products are accumulated in f32. x, weight, bias, y: f32, bf16 or
// f16, alike. Bits do not depend on the number of threads.
//
// `tile` is for tests: what a block of GPU kernels does, instead of what a model of the times says.
// k64x64 or k128x128; lives until the call returns.
struct ConvArgs {
  View x;       // [N, H, W, C]
  View weight;  // [O, C, kh, kw]
  View bias{};  // [O]; optional
  View y;       // [N, windows.count(H, kh), windows.count(W, kw), O]
  Windows windows{};
  PackedWeight* packed = nullptr;  // optional
  const GemmTile* tile = nullptr;
};

// dx = the gradient of x.
struct ConvInputGradArgs {
  View dy;      // [N, OH, OW, O]
  View weight;  // [O, C, kh, kw]
  View dx;      // [N, H, W, C]
  Windows windows{};
  PackedWeight* packed = nullptr;  // optional; not that of a ConvArgs
  const GemmTile* tile = nullptr;
};

// dweight = the gradient of weight: a sum in f32, added to what is there with accumulate, rounded
// once.
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
