#include "shale/kernels/cuda/nvrtc/pointwise.h"

#include <cuda.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/cuda/nvrtc/library.h"
#include "shale/kernels/cuda/nvrtc/program.h"
#include "shale/kernels/cuda/pointwise/operands.h"
#include "shale/kernels/pointwise_source.h"
#include "shale/kernels/simt/cuda/driver.h"

namespace shale::kernels::cuda {

template <typename Args>
void run(const Exec& exec, const Args& args);  // as in kernels/cuda/run.h

}  // namespace shale::kernels::cuda

namespace shale::kernels::cuda::nvrtc {
namespace {

constexpr const char* kKernel = "fused_kernel";

// The driver functions that launch a compiled kernel.
struct Driver {
  decltype(&::cuModuleLoadData) load_module;
  decltype(&::cuModuleGetFunction) get_function;
  decltype(&::cuLaunchKernelEx) launch;
  decltype(&::cuGetErrorName) error_name;
};

const Driver& driver() {
  static const Driver once = [] {
    Driver found{};
    const auto find = [](auto& function, const char* name, unsigned version) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          find_driver_function(name, version));
    };
    find(found.load_module, "cuModuleLoadData", 2000);
    find(found.get_function, "cuModuleGetFunction", 2000);
    find(found.launch, "cuLaunchKernelEx", 11060);
    find(found.error_name, "cuGetErrorName", 6000);
    return found;
  }();
  return once;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver().error_name(result, &name);
  throw InternalError(cat("cuda: ", what, ": ", name != nullptr ? name : "unknown error"));
}

// Returns the kernel of a source, compiled for a device, which must be the current one. Modules
// stay loaded.
CUfunction kernel_of(const std::string& source, const Device& device) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, CUfunction> kernels;
  const std::lock_guard<std::mutex> lock(mutex);
  CUfunction& kernel = kernels[{device.index, source}];
  if (kernel != nullptr) return kernel;
  const std::string ptx = compile_to_ptx(whole_source(source), device.arch);
  CUmodule module = nullptr;
  check(driver().load_module(&module, ptx.c_str()), "cuModuleLoadData");
  check(driver().get_function(&kernel, module, kKernel), "cuModuleGetFunction");
  return kernel;
}

}  // namespace

void pointwise(const Exec& exec, const PointwiseArgs& args) {
  if (!args.compiled || switched_off()) return run(exec, args);
  const int64_t elements = args.outputs[0].numel();
  if (elements == 0) return;
  const CUfunction kernel = kernel_of(pointwise_source(args, kKernel), exec.device);
  PointwiseOperands operands = pointwise_operands(args);
  void* parameters[] = {&operands};
  constexpr int64_t kBlock = int64_t{4} * kPointwiseSourceThreads;
  CUlaunchAttribute dependent{};
  dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  dependent.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>((elements + kBlock - 1) / kBlock);
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = kPointwiseSourceThreads;
  config.hStream = static_cast<CUstream>(exec.stream);
  config.attrs = exec.dependent_launch ? &dependent : nullptr;
  config.numAttrs = exec.dependent_launch ? 1 : 0;
  check(driver().launch(&config, kernel, parameters, nullptr), "cuLaunchKernelEx");
}

}  // namespace shale::kernels::cuda::nvrtc
