#pragma once

#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Rows of a slab, the part of a tile that one warpgroup computes. Each column sum covers one slab's
// rows.
inline constexpr int kGemm90SlabRows = 64;

// Launch GEMMs with Hopper's tiles, like launch_gemm_bf16() and launch_gemm_f16(). k must not be 0.
void launch_gemm90_bf16(const Exec& exec, const GemmProblem& p, const GemmWork& work);
void launch_gemm90_f16(const Exec& exec, const GemmProblem& p, const GemmWork& work);

}  // namespace shale::kernels::SHALE_BACKEND
