#pragma once

#include "shale/kernels/gemm.h"

namespace shale::kernels::cuda::cublaslt {

// The gemm slot on GPUs: cuBLASLt or the hand-written kernels, as args.plan or gemm_plan() chooses.
// If the library cannot be loaded or has no algorithm, the hand-written kernels are used, unless
// args.plan asks for the library: then it throws UnavailableError.
void gemm(const Exec& exec, const GemmArgs& args);

}  // namespace shale::kernels::cuda::cublaslt
