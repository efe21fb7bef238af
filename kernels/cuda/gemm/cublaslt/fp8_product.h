#pragma once

#include <functional>

#include "shale/base/exec.h"
#include "shale/kernels/fp8.h"

namespace shale::kernels::cuda::cublaslt {

// The library's product of such operands, for benchmarks: what it returns computes c = a bᵀ, or
// c += a bᵀ, of arguments of the same shapes, with their scales; bias and residual are left out.
// Null where the library has no algorithm: scales of blocks came with CUDA 12.9, and are to be
// rows of a multiple of kFp8Block.
//
// Workspace of exec: 32 MiB. Throws UnavailableError where the library cannot be loaded.
std::function<void(const Fp8GemmArgs&)> fp8_product(const Exec& exec, const Fp8GemmArgs& like);

}  // namespace shale::kernels::cuda::cublaslt
