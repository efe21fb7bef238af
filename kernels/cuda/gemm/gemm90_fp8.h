#pragma once

#include "shale/kernels/cuda/gemm/gemm90.cuh"
#include "shale/kernels/fp8.h"

namespace shale::kernels::SHALE_BACKEND {

// Runs the GEMM `p` with the fp8 operands of `args`. No size may be 0.
void launch_fp8_gemm90(const Exec& exec, const Fp8GemmArgs& args, const GemmProblem& p,
                       const GemmWork& work);

}  // namespace shale::kernels::SHALE_BACKEND
