#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Measures the FLOP/s of a large square GEMM on the context's device and threads. They are the peak
// for MFU on devices without a published peak. Takes about a second.
double measure_gemm_peak(Context& context, DType dtype);

}  // namespace shale::models
