// CUDA runtime functions that comm/nccl and GPU clocks use, for machines without CUDA: a device
// that is always idle, and whose events are a millisecond apart.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "shale/base/error.h"
#include "shale/kernels/simt/cuda/cuda_error.h"

#ifndef SHALE_HAVE_CUDA  // with CUDA, the kernels' library defines these

namespace shale::kernels::cuda {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw InternalError(what);
}

}  // namespace shale::kernels::cuda

#endif

namespace {

std::atomic<int64_t> milliseconds_passed = 0;

float milliseconds_between(cudaEvent_t from, cudaEvent_t to) {
  return static_cast<float>(*reinterpret_cast<int64_t*>(to) - *reinterpret_cast<int64_t*>(from));
}

}  // namespace

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
int64_t shale_test_events_made = 0;

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new int64_t(0));
  ++shale_test_events_made;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<int64_t*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *reinterpret_cast<int64_t*>(event) = ++milliseconds_passed;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
#if CUDART_VERSION >= 12080
#undef cudaEventElapsedTime
#endif
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = milliseconds_between(from, to);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = milliseconds_between(from, to);
  return cudaSuccess;
}

}  // extern "C"
