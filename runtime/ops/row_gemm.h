#pragma once

#include "shale/kernels/gemm.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// y = kernels::gemm() with the rows of x, y and residual, which may be undefined, for a, c and
// residual of `args`. Where rows of x are still travelling, or those of the result do
// (nn/distribution.h), the product is made piece by piece.
void row_gemm(const Tensor& x, const Tensor& residual, const Tensor& y, kernels::GemmArgs args);

}  // namespace shale
