#pragma once

#include "shale/kernels/cuda/gemm/grouped_gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Launch Hopper's kernel for a and b of the dtype in the function's name, like
// launch_grouped_gemm_bf16(). k must not be 0.
void launch_grouped_gemm90_bf16(const Exec& exec, const GroupedProblem& g, const GroupedWork& work);
void launch_grouped_gemm90_f16(const Exec& exec, const GroupedProblem& g, const GroupedWork& work);

}  // namespace shale::kernels::SHALE_BACKEND
