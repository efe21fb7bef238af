#pragma once

#include "shale/kernels/pointwise.h"

namespace shale::kernels::cuda::nvrtc {

// The pointwise slot on GPUs. If args.compiled is set and SHALE_NVRTC is not "off", it compiles
// programs; otherwise it interprets them. Compiled kernels are cached per program, dtypes and
// compute capability, for the life of the process. A program that NVRTC or the driver refuses is
// interpreted, which gives the same bits, with one warning. Throws UnavailableError without NVRTC.
void pointwise(const Exec& exec, const PointwiseArgs& args);

}  // namespace shale::kernels::cuda::nvrtc
