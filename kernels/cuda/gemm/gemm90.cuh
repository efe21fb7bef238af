#pragma once

#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Rows of c that a warpgroup has of a tile: column sums are those of so many rows.
inline constexpr int kGemm90SlabRows = 64;

// The products with Hopper's tiles; as launch_gemm_bf16() and launch_gemm_f16(), and k is not 0.
void launch_gemm90_bf16(const Exec& exec, const GemmProblem& p, const GemmWork& work);
void launch_gemm90_f16(const Exec& exec, const GemmProblem& p, const GemmWork& work);

}  // namespace shale::kernels::SHALE_BACKEND
