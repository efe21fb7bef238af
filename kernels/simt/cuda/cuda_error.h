#pragma once

#include <cuda_runtime.h>

#include "shale/base/device.h"

namespace shale::kernels::cuda {

// Throws for any result but success: OutOfMemoryError, UnavailableError if the machine has no
// usable GPU or driver, else InternalError. `what` is the name of the call: "cudaMalloc".
void check(cudaError_t result, const char* what);

// Like check(), for a launch of `kernel`; the message also has the launch configuration.
void check_launch(cudaError_t result, const void* kernel, const cudaLaunchConfig_t& config);

// Throws UnavailableError if `device`, below compute capability 9.0, has no dependent launch.
void check_dependent_launch(const void* kernel, const Device& device);

// Allows `kernel` this dynamic shared memory on `device`, which must be the current one. Calls the
// runtime once for each kernel, device and larger size. Throws InternalError if a block cannot have
// it besides the kernel's static objects.
void allow_shared_memory(const void* kernel, const Device& device, size_t bytes);

}  // namespace shale::kernels::cuda
