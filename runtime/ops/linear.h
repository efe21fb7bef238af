#pragma once

#include <cstdint>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Operand formats of a linear layer's GEMMs in forward and backward.
enum class Operands : uint8_t {
  kPlain,
  // E4M3 with one scale per 128 elements along the summed dimension; weights have one scale per
  // block of 128 x 128 (kernels/fp8.h; DeepSeek-V3, arXiv:2412.19437, section 3.3). x and the
  // gradient of y are quantized separately for each GEMM, along its summed dimension. Partial sums
  // over 128 elements are scaled and added in f32. GPUs need compute capability 9.0.
  kFp8,
  // One scale per tensor. x and the weight are E4M3, the gradient of y is E5M2. Transformer Engine
  // calls this current scaling.
  kFp8Tensor,
};

// y = x weightᵀ + bias + residual. x: [..., K], contiguous; weight: [N, K]; bias: [N]; residual and
// y: [..., N]. All have one dtype, bf16 for fp8 operands. bias and residual are optional. Throws
// ShapeError, DTypeError. Keeps x and weight for backward. With fp8 operands it keeps x's quantized
// transpose instead of x, if the weight may need a gradient and x is not recomputed.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Tensor& residual = {}, Operands operands = Operands::kPlain);

// Scope in which linear layers with fp8 operands share the quantized form of each x, and keep its
// transpose only once. Use it for a tensor that several layers read, such as the input of the
// query, key and value projections. Results are bitwise the same without it. A second object for
// the same tensor has no effect.
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
