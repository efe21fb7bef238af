#include "shale/kernels/simt/cuda/cuda_error.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/host_name.h"

namespace shale::kernels::cuda {
namespace {

constexpr size_t kUnaskedSharedBytes = size_t{48} << 10;

// Returns advice for the user that CUDA's own error text lacks, or an empty text.
const char* advice(cudaError_t result) {
  switch (result) {
    case cudaErrorInsufficientDriver:
      return "; the driver is missing, or older than the CUDA version that this program was built "
             "with";
    case cudaErrorNoDevice: return "; is CUDA_VISIBLE_DEVICES empty?";
    case cudaErrorNoKernelImageForDevice:
      return "; this program was not compiled for this GPU (SHALE_CUDA_ARCHITECTURES)";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
    case cudaErrorAssert:
      return "; an earlier kernel caused it: see CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer";
    default: return "";
  }
}

// Names the current GPU after an error of its hardware: ECC, Xid, fallen off the bus. `shale run
// --elastic` reads this.
std::string place_of_fault() {
  int device = 0;
  char bus[32] = "of unknown place";
  if (cudaGetDevice(&device) == cudaSuccess) cudaDeviceGetPCIBusId(bus, sizeof bus, device);
  return cat("; ", kBrokenGpu, bus, kOfHost, host_name(), ", see Xid in its kernel log (dmesg)");
}

[[noreturn]] void fail(cudaError_t result, const std::string& what) {
  const std::string message = cat("cuda: ", what, ": ", cudaGetErrorName(result), ", ",
                                  cudaGetErrorString(result), advice(result));
  switch (result) {
    case cudaErrorMemoryAllocation:
      cudaGetLastError();  // clears the error, which is not final: later calls may succeed
      throw OutOfMemoryError(message);
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case static_cast<cudaError_t>(226):  // cudaErrorContained, since CUDA 12.9
    case cudaErrorUnknown:
    case cudaErrorDevicesUnavailable: throw UnavailableError(message + place_of_fault());
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorInvalidDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorStubLibrary: throw UnavailableError(message);
    default: throw InternalError(message);
  }
}

const char* name_of(const void* kernel) {
#if CUDART_VERSION >= 12030
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) == cudaSuccess) return name;
#else
  static_cast<void>(kernel);
#endif
  return "a kernel";
}

std::string text_of(const dim3& size) {
  return cat(size.x, "x", size.y, "x", size.z);
}

}  // namespace

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) fail(result, what);
}

void check_launch(cudaError_t result, const void* kernel, const cudaLaunchConfig_t& config) {
  if (result == cudaSuccess) return;
  fail(result, cat("launch of ", name_of(kernel), " with ", text_of(config.gridDim), " blocks of ",
                   text_of(config.blockDim), " threads and ", config.dynamicSmemBytes,
                   " bytes of dynamic shared memory"));
}

void check_dependent_launch(const void* kernel, const Device& device) {
  if (device.arch >= 90) return;
  throw UnavailableError(cat("dependent launch of ", name_of(kernel), ": ", device,
                             " has compute capability ", capability_text(device.arch),
                             ", expected 9.0 or later"));
}

void allow_shared_memory(const void* kernel, const Device& device, size_t bytes) {
  static std::mutex mutex;
  static auto& allowed = *new std::map<std::pair<const void*, int>, size_t>;
  // Sets more than the default limit, so that a raised limit is never equal to the default one.
  bytes = std::max(bytes, kUnaskedSharedBytes + 1024);
  const std::lock_guard lock(mutex);
  size_t& most = allowed[{kernel, device.index}];
  if (bytes <= most) return;
  const cudaError_t result = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (result != cudaSuccess) {
    cudaFuncAttributes attributes{};
    cudaFuncGetAttributes(&attributes, kernel);
    fail(result, cat(name_of(kernel), ": ", bytes, " bytes of dynamic shared memory beside ",
                     attributes.sharedSizeBytes, " static ones"));
  }
  most = bytes;
}

}  // namespace shale::kernels::cuda
