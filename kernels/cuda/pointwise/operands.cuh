#pragma once

#include "shale/kernels/cuda/pointwise/operands.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

#include "shale/kernels/cuda/pointwise/operands_device.cuh"

}  // namespace shale::kernels::SHALE_BACKEND
