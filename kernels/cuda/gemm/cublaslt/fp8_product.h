#pragma once

#include <functional>

#include "shale/base/exec.h"
#include "shale/kernels/fp8.h"

namespace shale::kernels::cuda::cublaslt {

// cuBLASLt's fp8 GEMM, for benchmarks. The returned function computes c = a bᵀ, or c += a bᵀ, with
// scales, for arguments of the same shapes; it ignores bias and residual. Returns null if the
// library has no algorithm: block scales need CUDA 12.9, and rows of scales that are multiples of
// kFp8Block.
//
// Workspace of exec: 32 MiB. Throws UnavailableError if the library cannot be loaded.
std::function<void(const Fp8GemmArgs&)> fp8_product(const Exec& exec, const Fp8GemmArgs& like);

}  // namespace shale::kernels::cuda::cublaslt
