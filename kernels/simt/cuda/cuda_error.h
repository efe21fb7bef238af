#pragma once

#include <cuda_runtime.h>

#include "shale/base/device.h"

namespace shale::kernels::cuda {

// Throws for any result but success: OutOfMemoryError, UnavailableError where the machine has no
// usable GPU or driver, else InternalError. `what` is the call, as in "cudaMalloc".
void check(cudaError_t result, const char* what);

// The same for a launch of `kernel`, which the message names together with its configuration.
void check_launch(cudaError_t result, const void* kernel, const cudaLaunchConfig_t& config);

// Throws UnavailableError where a dependent launch of `kernel` cannot be: its code has no wait.
void check_dependent_launch(const void* kernel, const Device& device);

// Lets `kernel` have so many bytes of dynamic shared memory on `device`, which is the current one.
// Asks the runtime once for each kernel, device and larger size. Throws InternalError where a block
// cannot have them beside the kernel's static objects.
void allow_shared_memory(const void* kernel, const Device& device, size_t bytes);

}  // namespace shale::kernels::cuda
