#pragma once

#include "shale/kernels/fp8.h"
#include "shale/kernels/gemm.h"

namespace shale::kernels::cuda::cublaslt {

// The gemm slot on GPUs: cuBLASLt or the hand-written kernels, as args.plan or gemm_plan() chooses.
// If the library cannot be loaded or has no algorithm, the hand-written kernels are used, unless
// args.plan asks for the library: then it throws UnavailableError.
void gemm(const Exec& exec, const GemmArgs& args);

// The fp8_gemm slot on GPUs without kernels of Shale. Throws UnavailableError if the library cannot
// be loaded or has no algorithm, and ShapeError if N, or the memory of c, is not as it requires.
void fp8_gemm(const Exec& exec, const Fp8GemmArgs& args);

}  // namespace shale::kernels::cuda::cublaslt
