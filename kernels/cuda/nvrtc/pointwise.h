#pragma once

#include "shale/kernels/pointwise.h"

namespace shale::kernels::cuda::nvrtc {

// Entry of the slot on GPUs: interprets, but for programs that want to be compiled (and
// SHALE_NVRTC=off not set). Those are compiled once per program, dtypes and compute capability, for
// the life of the process. Throws as compile_to_ptx() does.
void pointwise(const Exec& exec, const PointwiseArgs& args);

}  // namespace shale::kernels::cuda::nvrtc
