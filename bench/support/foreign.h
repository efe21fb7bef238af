#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

using namespace kernel_check;

// A user's kernel, which bench_kernels compares with Shale's: a function in a source file,
//   extern "C" void FUNCTION(const void* const* in, void* const* out, const int64_t* shape,
//                            cudaStream_t stream);
// It queues its work on `stream` and does not wait. in, out, shape: see plain_operands().
class ForeignKernel {
 public:
  // place: "FILE:FUNCTION". Compiles the file and loads it: .cu files with nvcc for kCuda, other
  // files with the C++ compiler for kCpu, where `stream` has no use. Throws MissingInputError
  // without the file, UnavailableError without the compiler, and ConfigError for anything else.
  ForeignKernel(const std::string& place, DeviceType device);
  ~ForeignKernel();
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;

  const std::string& name() const { return name_; }  // "my_kernel.cu:launch", without the folder

  // Calls both kernels on the same operands. Returns the largest difference of a result, relative
  // to the largest result. Throws DataError if it is above foreign_tolerance(), ConfigError for
  // a case without plain operands.
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

// Largest difference that ForeignKernel::compare() allows in results of this dtype: 4 roundings,
// and for f32 those of TF32 GEMMs.
double foreign_tolerance(DType dtype);

}  // namespace shale::bench
