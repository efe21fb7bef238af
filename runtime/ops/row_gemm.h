#pragma once

#include "shale/kernels/gemm.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Computes y = kernels::gemm(args) with x, y and residual (may be undefined) as a, c and residual.
// Works piece by piece if rows of x are still in transfer, or if rows of the result are to be sent
// (nn/distribution.h).
void row_gemm(const Tensor& x, const Tensor& residual, const Tensor& y, kernels::GemmArgs args);

}  // namespace shale
