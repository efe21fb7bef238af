#pragma once

namespace shale::kernels::cuda {

// Returns a driver function that exists since this version of CUDA (12000 for 12.0). It is looked
// up at run time, so that programs start on machines without a driver. Throws UnavailableError if
// the driver lacks it.
void* find_driver_function(const char* name, unsigned version);

}  // namespace shale::kernels::cuda
