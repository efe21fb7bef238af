#pragma once

namespace shale::kernels::cuda {

// A function of the driver, which has had it since this version of CUDA (12000 for 12.0). Found
// when asked for: programs start on machines without a driver. Throws UnavailableError where the
// driver lacks it.
void* find_driver_function(const char* name, unsigned version);

}  // namespace shale::kernels::cuda
