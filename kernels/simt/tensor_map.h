#pragma once

// A TensorMap describes an array in device memory and its boxes for TMA. The host makes it with
// make_tensor_map(TensorMapSpec) and passes it to a kernel by value, as `const __grid_constant__
// TensorMap`: TMA reads it from the kernel arguments. make_tensor_map() throws ShapeError for a
// spec that a map cannot describe (kernels/tensor_map_spec.h), and UnavailableError if the driver
// lacks the function.

#include "shale/kernels/simt/backend.h"
#include "shale/kernels/tensor_map_spec.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/tensor_map.h"
#else
#include "shale/kernels/simt/emu/tensor_map.h"
#endif
