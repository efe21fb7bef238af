#pragma once

#include "shale/kernels/fp8.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The products of linear() with operands of fp8, of bf16 tensors.

// What shares a scale of the weight, whose numbers are of E4M3.
kernels::Fp8Blocks fp8_weight_blocks(Operands operands);

struct LinearInputs {
  const Tensor &x, &weight;
  const Tensor &bias, &residual;  // may be undefined
};

// y = x weightᵀ + bias + residual.
void multiply_fp8(Operands operands, const LinearInputs& inputs, const Tensor& y);

// What a backward needs of x, number 0, and weight, number 1, of the inputs. The gradient of y is
// read once for both.
void emit_fp8_grads(Operands operands, BackwardArgs& args, const SavedTensor& x,
                    const SavedTensor& weight, Grads& grads);

}  // namespace shale
