#pragma once

// Source files as strings, which the build generates (cmake/ShaleNvrtc.cmake).
namespace shale::kernels::cuda::nvrtc::texts {

extern const char* const kPrelude;      // kernels/cuda/nvrtc/prelude.cuh
extern const char* const kPointwiseOp;  // kernels/pointwise_op.h
extern const char* const kLayout;       // kernels/cuda/pointwise/operands_layout.h
extern const char* const kOperands;     // kernels/cuda/pointwise/operands_device.cuh
extern const char* const kFour;         // kernels/cuda/pointwise/four.cuh
extern const char* const kFunctions;    // kernels/pointwise_functions-inl.h

}  // namespace shale::kernels::cuda::nvrtc::texts
