// Stand-in for CUDA runtime functions on machines without CUDA: those used by GPUs as devices, by
// their clocks and by NCCL groups. The device is always idle, and its events are a millisecond
// apart.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "shale/kernels/registry.h"

#ifndef SHALE_HAVE_CUDA  // in builds with CUDA, the kernels' library defines these functions

namespace shale::kernels {

void cuda::register_kernels() {}
int cuda::kernel_arch() {
  return 90;
}
KernelParts cuda::parts_of(const Device&, std::string_view) {
  return 0;
}
void cuda::leave_out(std::string_view, KernelParts) {}

}  // namespace shale::kernels

#endif

namespace {

std::atomic<int64_t> milliseconds_passed = 0;

// Whether this thread captures a graph, and the mode, which says whether it may make calls that
// CUDA considers unsafe.
thread_local bool captures = false;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

void* const kStream = &capture_mode;

float milliseconds_between(cudaEvent_t from, cudaEvent_t to) {
  return static_cast<float>(*reinterpret_cast<int64_t*>(to) - *reinterpret_cast<int64_t*>(from));
}

}  // namespace

extern "C" {

cudaError_t shale_test_cuda_error = cudaSuccess;  // returned by functions that wait for a stream
char shale_test_max_connections[8] = "";  // value of CUDA_DEVICE_MAX_CONNECTIONS at the first call

bool shale_test_may_allocate() {
  return !captures || capture_mode == cudaStreamCaptureModeRelaxed;
}

int shale_test_driver = CUDART_VERSION;

cudaError_t cudaDriverGetVersion(int* version) {
  *version = shale_test_driver;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (*shale_test_max_connections == '\0' && connections != nullptr) {
    std::strncpy(shale_test_max_connections, connections, sizeof shale_test_max_connections - 1);
  }
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9
           : attribute == cudaDevAttrMultiProcessorCount  ? 114
                                                          : 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "a name";
}
const char* cudaGetErrorString(cudaError_t) {
  return "a text";
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (!shale_test_may_allocate()) return cudaErrorStreamCaptureUnsupported;
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void*) {
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  *attributes = {};
  attributes->type = cudaMemoryTypeHost;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = static_cast<cudaStream_t>(kStream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return shale_test_cuda_error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  captures = true;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  captures = false;
  *graph = nullptr;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph, cudaGraph_t, unsigned long long) {
  *graph = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncGetName(const char** name, const void*) {
  *name = "a kernel";
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
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
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
