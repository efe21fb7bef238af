// What comm/nccl calls of CUDA's runtime, for machines without it: a device that is always done.
#include <cuda_runtime.h>

#include <cstring>

#include "shale/base/error.h"
#include "shale/kernels/simt/cuda/cuda_error.h"

#ifndef SHALE_HAVE_CUDA  // else the kernels have it

namespace shale::kernels::cuda {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw InternalError(what);
}

}  // namespace shale::kernels::cuda

#endif

extern "C" {

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  std::strncpy(id, "0000:00:00.0", static_cast<size_t>(length));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
#if CUDART_VERSION >= 12080
#undef cudaEventElapsedTime
#endif
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

}  // extern "C"
