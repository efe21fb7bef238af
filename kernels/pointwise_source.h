#pragma once

#include <string>

#include "shale/kernels/pointwise.h"

namespace shale::kernels {

// Returns the source of a CUDA kernel, `__global__ void <name>(PointwiseOperands)`, that runs the
// program for inputs and outputs of the dtypes of `args`, with any shape and strides. The source
// uses kernels/cuda/pointwise/operands_device.cuh, four.cuh and kernels/pointwise_functions-inl.h.
// A thread computes four elements; a block has kPointwiseSourceThreads threads.
std::string pointwise_source(const PointwiseArgs& args, const std::string& name);
inline constexpr int kPointwiseSourceThreads = 128;

}  // namespace shale::kernels
