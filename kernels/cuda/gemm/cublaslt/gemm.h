#pragma once

#include "shale/kernels/fp8.h"
#include "shale/kernels/gemm.h"

namespace shale::kernels::cuda::cublaslt {

// The gemm slot on GPUs: runs cuBLASLt or the hand-written kernels, as args.plan or gemm_plan()
// chooses. If cuBLASLt cannot be loaded or has no algorithm, the hand-written kernels run. But if
// args.plan asks for cuBLASLt, it throws UnavailableError in this case.
void gemm(const Exec& exec, const GemmArgs& args);

// The fp8_gemm slot on GPUs for which Shale has no fp8 kernels: runs cuBLASLt. Throws
// UnavailableError if cuBLASLt cannot be loaded or has no algorithm. Throws ShapeError if N or the
// layout of c does not meet its requirements.
void fp8_gemm(const Exec& exec, const Fp8GemmArgs& args);

}  // namespace shale::kernels::cuda::cublaslt
