#pragma once

#include <compare>
#include <optional>
#include <string>

#include "shale/base/dtype.h"
#include "shale/kernels/slot.h"

namespace shale::bench {

enum class ConvPass : uint8_t { kForward, kInputGrad, kWeightGrad };

// A convolution of dense NHWC images, or one of its gradients.
struct ConvSpec {
  ConvPass pass = ConvPass::kForward;
  int64_t images = 0, rows = 0, cols = 0, channels = 0;  // sizes of the input
  int64_t out_rows = 0, out_cols = 0, out_channels = 0;
  int64_t kernel_rows = 0, kernel_cols = 0;
  int64_t stride = 1, padding = 0;
  DType dtype = DType::kF32;  // dtype of images and weights; weight gradients are f32

  double flops() const;
  int64_t x_bytes() const;  // bytes of the input or its gradient
  int64_t y_bytes() const;
  // Returns a text such as "conv 3x3/2 32x56x56x64 -> 128, input gradient".
  std::string name() const;
  friend auto operator<=>(const ConvSpec&, const ConvSpec&) = default;
};

// The convolution of a kernel call, with the images that it reads and writes. Weights are left out,
// because each library has its own layout.
struct ConvCall {
  ConvSpec spec;
  const void* in = nullptr;  // x; dy for an input gradient
  const void* dy = nullptr;  // only for a weight gradient
  void* out = nullptr;       // y or dx; null for a weight gradient
};
std::optional<ConvCall> conv_call(const kernels::SlotCall& call);

}  // namespace shale::bench
