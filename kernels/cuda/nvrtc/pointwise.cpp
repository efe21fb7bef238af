#include "shale/kernels/cuda/nvrtc/pointwise.h"

#include <cuda.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
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

// Compiles a source for a device, which must be the current one. Null if NVRTC does not know the
// device, or the driver is too old for NVRTC's code. The module stays loaded.
CUfunction compiled(const std::string& source, const Device& device) {
  try {
    const std::string cubin = compile_to_cubin(whole_source(source), device.arch);
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    check(driver().load_module(&module, cubin.data()), "cuModuleLoadData");
    check(driver().get_function(&kernel, module, kKernel), "cuModuleGetFunction");
    return kernel;
  } catch (const InternalError& error) {
    static std::once_flag warned;
    std::call_once(warned, [&] {
      log_warning("fused: ", device, " interprets chains of ops, which is slower: ", error.what());
    });
    return nullptr;
  }
}

// Returns the kernel of a source, or null if it is to be interpreted.
CUfunction kernel_of(const std::string& source, const Device& device) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, CUfunction> kernels;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = kernels.find({device.index, source});
  if (known != kernels.end()) return known->second;
  return kernels[{device.index, source}] = compiled(source, device);
}

}  // namespace

void pointwise(const Exec& exec, const PointwiseArgs& args) {
  if (!args.compiled || switched_off()) return run(exec, args);
  const int64_t elements = args.outputs[0].numel();
  if (elements == 0) return;
  const CUfunction kernel = kernel_of(pointwise_source(args, kKernel), exec.device);
  if (kernel == nullptr) return run(exec, args);
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
