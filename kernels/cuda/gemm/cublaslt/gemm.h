#pragma once

#include "shale/kernels/gemm.h"

namespace shale::kernels::cuda::cublaslt {

// Entry of the slot on GPUs: by cuBLASLt or by the hand-written kernels, whichever args.plan or
// gemm_plan() names. Where the library cannot be loaded, or has no algorithm, by the latter, unless
// args.plan asks for the library: then that throws UnavailableError.
void gemm(const Exec& exec, const GemmArgs& args);

}  // namespace shale::kernels::cuda::cublaslt
