#include "shale/kernels/simt/cuda/driver.h"

#include <cuda_runtime.h>

#include "shale/base/error.h"
#include "shale/kernels/simt/cuda/cuda_error.h"

namespace shale::kernels::cuda {

void* find_driver_function(const char* name, [[maybe_unused]] unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found),
        "cudaGetDriverEntryPoint");
#endif
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw UnavailableError(
        cat("cuda: the driver has no ", name, ", expected one for CUDA ", version / 1000));
  }
  return function;
}

}  // namespace shale::kernels::cuda
