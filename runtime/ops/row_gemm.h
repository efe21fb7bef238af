#pragma once

#include "shale/kernels/gemm.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Computes y = kernels::gemm(args) with x, y and residual (may be undefined) as args.a, args.c and
// args.residual. If rows of x are still in transfer, or rows of the result are to be sent
// (nn/distribution.h), processes one range of rows after another.
void row_gemm(const Tensor& x, const Tensor& residual, const Tensor& y, kernels::GemmArgs args);

}  // namespace shale
