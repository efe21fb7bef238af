#pragma once

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The products of linear() with Operands::kFp8, of bf16 tensors.

// y = x weightᵀ + bias + residual; the last two may be undefined.
void multiply_fp8(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                  const Tensor& y);

// What a backward needs of x, number 0, and weight, number 1, of the inputs. The gradient of y is
// read once for both.
void emit_fp8_grads(BackwardArgs& args, const SavedTensor& x, const SavedTensor& weight,
                    Grads& grads);

}  // namespace shale
