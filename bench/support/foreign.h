#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

using namespace kernel_check;

// A user's kernel, which bench_kernels compares with Shale's. It is a function in a source file:
//   extern "C" void FUNCTION(const void* const* in, void* const* out, const int64_t* shape,
//                            cudaStream_t stream);
// It queues its work on `stream` and does not wait. in, out, shape: see plain_operands().
class ForeignKernel {
 public:
  // Compiles and loads a kernel. place: "FILE:FUNCTION". .cu files are compiled with nvcc, for
  // kCuda; other files with the C++ compiler, for kCpu, which does not use `stream`. Throws
  // MissingInputError if there is no such file, UnavailableError if there is no compiler, and
  // ConfigError for other errors.
  ForeignKernel(const std::string& place, DeviceType device);
  ~ForeignKernel();
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;

  const std::string& name() const { return name_; }  // "my_kernel.cu:launch", without the folder

  // Calls both kernels on the same operands. Returns the largest difference between results,
  // relative to the largest result. Throws DataError if it is above foreign_tolerance(),
  // ConfigError for a case without plain operands.
  double compare(const KernelBench& bench, const PreparedCase& prepared) const;
  // Returns a function that queues one call on the next copy of the operands.
  std::function<void()> calls(const KernelBench& bench, const PreparedCase& prepared) const;

 private:
  using Launch = void (*)(const void* const* in, void* const* out, const int64_t* shape,
                          void* stream);
  std::string name_;
  void* library_ = nullptr;
  Launch launch_ = nullptr;
};

// Largest relative difference that ForeignKernel::compare() allows in results of this dtype: 4
// roundings of it, for f32 4 roundings of TF32.
double foreign_tolerance(DType dtype);

}  // namespace shale::bench
