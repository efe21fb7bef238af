// Tests how chains of ops are compiled at run time by NVRTC and loaded by the driver, with
// stand-ins for both.
#include <cuda.h>

#include <string>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/cuda/nvrtc/pointwise.h"
#include "shale/kernels/cuda/nvrtc/texts.h"
#include "shale/kernels/pointwise_graph.h"
#include "shale/test/support/catch.h"

namespace {

std::string loaded;       // code that was given to the driver
bool old_driver = false;  // true: the driver refuses all code
int launched = 0, interpreted = 0;

CUresult load_module(CUmodule*, const void* image) {
  loaded = static_cast<const char*>(image);
  return old_driver ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_SUCCESS;
}
CUresult get_function(CUfunction* function, CUmodule, const char*) {
  *function = reinterpret_cast<CUfunction>(&loaded);
  return CUDA_SUCCESS;
}
CUresult launch(const CUlaunchConfig*, CUfunction, void**, void**) {
  ++launched;
  return CUDA_SUCCESS;
}
CUresult error_name(CUresult, const char** name) {
  *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
  return CUDA_SUCCESS;
}

}  // namespace

namespace shale::kernels::cuda {

void* find_driver_function(const char* name, unsigned) {
  const std::string_view wanted = name;
  if (wanted == "cuModuleLoadData") return reinterpret_cast<void*>(load_module);
  if (wanted == "cuModuleGetFunction") return reinterpret_cast<void*>(get_function);
  if (wanted == "cuLaunchKernelEx") return reinterpret_cast<void*>(launch);
  return reinterpret_cast<void*>(error_name);
}

// Stand-in for the kernel that interprets a chain.
template <typename Args>
void run(const Exec& exec, const Args& args);
template <>
void run(const Exec&, const PointwiseArgs&) {
  ++interpreted;
}

namespace nvrtc::texts {
const char* const kPrelude = "";
const char* const kPointwiseOp = "";
const char* const kLayout = "";
const char* const kOperands = "";
const char* const kFour = "";
const char* const kFunctions = "";
}  // namespace nvrtc::texts
}  // namespace shale::kernels::cuda

namespace shale::test {
namespace {

// Runs a chain of `length` ops on a GPU.
void run_chain(int length, int arch) {
  kernels::PointwiseGraph graph;
  int value = graph.input(DType::kF32);
  for (int i = 0; i < length; ++i) {
    value = graph.apply(kernels::PointwiseOp::kExp, DType::kF32, {value});
  }
  const kernels::PointwiseProgram program = graph.compile("chain", {value});
  float x = 1, y = 0;
  kernels::PointwiseArgs args;
  args.program = &program;
  args.inputs[0] = make_view(&x, {1});
  args.outputs[0] = make_view(&y, {1});
  args.compiled = true;
  const Exec exec{.device = {.type = DeviceType::kCuda, .arch = arch}};
  launched = interpreted = 0;
  kernels::cuda::nvrtc::pointwise(exec, args);
}

TEST_CASE("a chain is compiled to the GPU's machine code, by the NVRTC of the build's version") {
  run_chain(1, 90);
  CHECK(launched == 1);
  CHECK(loaded == cat("built with --gpu-architecture=sm_90 --std=c++20 --fmad=false"));
}

TEST_CASE("what NVRTC or the driver refuses is interpreted, with one warning") {
  int warnings = 0;
  process_log().listen([&](LogLevel, std::string_view) { ++warnings; });
  run_chain(2, 120);  // this NVRTC does not know compute capability 12.0
  CHECK(interpreted == 1);
  CHECK(launched == 0);
  old_driver = true;
  for (const int length : {3, 3, 4}) {
    run_chain(length, 90);
    CHECK(interpreted == 1);
    CHECK(launched == 0);
  }
  old_driver = false;
  run_chain(3, 90);  // the old driver refused this chain, so it is still interpreted
  CHECK(interpreted == 1);
  run_chain(5, 90);
  CHECK(launched == 1);
  process_log().listen({});
  CHECK(warnings == 1);
}

}  // namespace
}  // namespace shale::test
