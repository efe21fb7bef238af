// Tests a GPU as a device, with a stand-in for CUDA's runtime.
#include <cuda_runtime.h>

#include <cstdlib>
#include <string>

#include "counts.h"
#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/comm/groups/group_self.h"
#include "shale/comm/nccl/group_nccl_internal.h"
#include "shale/runtime/tensor/graph.h"
#include "shale/test/support/catch.h"

extern "C" {
extern cudaError_t shale_test_cuda_error;
extern char shale_test_max_connections[8];
extern int shale_test_driver;
}

namespace shale::test {
namespace {

std::unique_ptr<DeviceBackend> make_gpu() {
  return make_cuda_backend({.type = DeviceType::kCuda});
}

std::string message_of_wait(cudaError_t error, ExitCode& code) {
  const auto gpu = make_gpu();
  void* const stream = gpu->create_stream();
  shale_test_cuda_error = error;
  std::string message;
  try {
    gpu->synchronize(stream);
  } catch (const Error& failure) {
    message = failure.what();
    code = failure.code();
  }
  shale_test_cuda_error = cudaSuccess;
  return message;
}

}  // namespace

TEST_CASE("CUDA is asked for all hardware queues before its first call") {
  make_gpu();
  CHECK(std::string(shale_test_max_connections) == "32");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
  make_gpu();
  CHECK(std::string(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS")) == "8");
}

TEST_CASE("a GPU says how many multiprocessors kernels may use") {
  CHECK(make_gpu()->held().total() == 114);
}

TEST_CASE("memory for NCCL is allocated during a capture as at other times") {
  const auto gpu = make_gpu();
  const auto context = std::make_shared<comm::WorldContext>();
  const comm::GroupOptions options = {.name = "gpus", .timeout_s = 60};
  comm::NcclGroup group(context, std::make_unique<comm::SelfGroup>(context, options), *gpu);
  void* const stream = gpu->create_stream();
  gpu->begin_capture(stream);
  void* memory = nullptr;
  CHECK_NOTHROW(memory = group.memory().allocate(1000));
  gpu->end_capture(stream);
  group.memory().free(memory, 1000);
}

TEST_CASE("dependent launches are captured from CUDA 12.3 on only") {
  for (const bool dependent : {false, true}) {
    Context context({.dependent_launch = dependent}, make_gpu());
    GraphMemory memory(context);
    const auto capture = [&] { Graph(memory, [] {}); };
    shale_test_driver = 12030;
    CHECK_NOTHROW(capture());
    shale_test_driver = 12020;
    if (dependent) {
      CHECK_THROWS_AS(capture(), UnavailableError);
    } else {
      CHECK_NOTHROW(capture());
    }
  }
}

TEST_CASE("a hardware error makes the GPU unavailable, and names it and its host") {
  const std::string place = cat("broken GPU 0000:00:00.0 of host ", host_name());
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError,
        static_cast<cudaError_t>(226), cudaErrorUnknown, cudaErrorDevicesUnavailable}) {
    ExitCode code{};
    const std::string message = message_of_wait(error, code);
    CAPTURE(error, message);
    CHECK(code == ExitCode::kUnavailable);
    CHECK(contains(message, place));
  }
  ExitCode code{};
  const std::string message = message_of_wait(cudaErrorIllegalAddress, code);
  CHECK(code == ExitCode::kInternal);
  CHECK_FALSE(contains(message, "broken"));
}

}  // namespace shale::test
