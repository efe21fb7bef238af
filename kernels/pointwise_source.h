#pragma once

#include <string>

#include "shale/kernels/pointwise.h"

namespace shale::kernels {

// A CUDA kernel, `__global__ void <name>(PointwiseOperands)`, that computes the program for inputs
// and outputs of the dtypes of `args`, of any shape and strides. It stands on what
// kernels/cuda/pointwise/operands_device.cuh, four.cuh and kernels/pointwise_functions-inl.h
// define. A thread owns four elements; a block has kPointwiseSourceThreads.
std::string pointwise_source(const PointwiseArgs& args, const std::string& name);
inline constexpr int kPointwiseSourceThreads = 128;

}  // namespace shale::kernels
