#pragma once

#include <cuda.h>

#include "shale/kernels/tensor_map_spec.h"

namespace shale::kernels::cuda::simt {

using TensorMap = CUtensorMap;

TensorMap make_tensor_map(const TensorMapSpec& spec);

}  // namespace shale::kernels::cuda::simt
