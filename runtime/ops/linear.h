#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// What the products of a linear layer, of forward and of backward, are made of.
enum class Operands : uint8_t {
  kPlain,
  // Numbers of E4M3 with a scale for each 128 of the dimension that is summed over, of weights for
  // 128 x 128 (kernels/fp8.h; DeepSeek-V3, arXiv:2412.19437, section 3.3). x and the gradient of y
  // are rounded anew for each product, along its sums, and products of 128 are scaled and added in
  // f32. GPUs: of compute capability 9.0 alone.
  kFp8,
  // With one scale for all of x, of the weight, of the gradient of y, which is of E5M2: what
  // Transformer Engine calls current scaling.
  kFp8Tensor,
};

// y = x weightᵀ + bias + residual.
// x: [..., K], contiguous; weight: [N, K]; bias: [N]; residual and y: [..., N]. One dtype. bias and
// residual are optional. Throws ShapeError, DTypeError, that of fp8 operands out of all but bf16.
// Keeps x and weight for backward, as they came; of x with fp8 operands its transpose, rounded, if
// the weight's gradient may be wanted and x is not computed again instead.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Tensor& residual = {}, Operands operands = Operands::kPlain);

// While it lives, products with fp8 operands share what they make of each x and keep its transpose
// once: for a tensor that several layers read, such as those of queries, keys and values. Results
// have the same bits without. Another one for the same tensor changes nothing.
class SharedInputs {
 public:
  explicit SharedInputs(const std::vector<Tensor>& x);
  ~SharedInputs();
  SharedInputs(const SharedInputs&) = delete;
  SharedInputs& operator=(const SharedInputs&) = delete;

 private:
  std::vector<Tensor> shared_;
};

}  // namespace shale
