#pragma once

// A TensorMap is what the bulk copy engine is told of an array in device memory and of its boxes.
// It is made on the host, by make_tensor_map(TensorMapSpec), and given to a kernel by value, as
// `const __grid_constant__ TensorMap`: the engine reads it where the arguments lie. Throws
// ShapeError for what a map cannot describe (kernels/tensor_map_spec.h), UnavailableError where the
// driver has no such function.

#include "shale/kernels/simt/backend.h"
#include "shale/kernels/tensor_map_spec.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/tensor_map.h"
#else
#include "shale/kernels/simt/emu/tensor_map.h"
#endif
