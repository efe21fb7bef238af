#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/exec.h"
#include "shale/kernels/registry.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::kernel_check {

// A kernel that a GPU does not use, and the reason.
struct LeftOut {
  std::string kernel;  // name as from names_of(): "attention_fwd/hopper"
  std::string reason;  // "wrong: attention_fwd/causal/...: ..."
};

// A slot that made a GPU fail or hang, and the parts of the slot that were left out at that time.
struct FailedKernel {
  std::string slot;
  kernels::KernelParts out = 0;
  friend bool operator==(const FailedKernel&, const FailedKernel&) = default;
};

// Thrown for a kernel that makes the GPU fail or hang. This process can no longer use the GPU.
class KernelFailure : public UnavailableError {
 public:
  KernelFailure(FailedKernel failed, const std::string& message)
      : UnavailableError(message), kernel(std::move(failed)) {}
  FailedKernel kernel;
};

struct CheckReport {
  std::vector<LeftOut> left_out;
  int64_t cases = 0;    // number of cases that ran
  int64_t not_run = 0;  // number of cases for which no time was left
  double seconds = 0;
};

struct CheckOptions {
  double limit_s = 20;  // time after which no further case begins
  // Also compares speed: runs one case of each kernel with the sizes of GPT-2's layers, and leaves
  // out a kernel if its substitute is much faster.
  bool real_sizes = true;
  std::vector<std::string> slots = {};  // slots to check; empty: all
  // Kernels that made the GPU fail or hang in earlier checks. They are left out without running.
  std::vector<FailedKernel> failed = {};
  // For tests: replaces the measured time of a case, in seconds, when the parts `out` are left out.
  std::function<double(const KernelCase&, kernels::KernelParts out)> seconds = {};
};

// Runs every kernel of a GPU on small shapes and on shapes of a real model, and compares its
// outputs with those of the same call on the CPU. If outputs of a slot are wrong, leaves out as few
// of its parts (kernels/registry.h) as possible. If no choice of parts gives correct outputs, calls
// of the slot throw UnavailableError from then on. exec: contains the backend's device, a stream
// and the run's tf32 setting. Waits for the stream. Throws KernelFailure for a kernel after which
// this process cannot use the GPU.
CheckReport check_kernels(DeviceBackend& backend, const Exec& exec, const CheckOptions& options);

// Returns the cases that check_kernels() runs on a device of this compute capability.
std::vector<KernelCase> check_cases(int arch, bool real_sizes);

// Compares `want` with `got`, the bytes of the same tensor computed on another device. Returns the
// first difference, such as "element 17 is 0.5, expected 0.25"; empty if there is none. Integers
// must be equal. Up to 1% of u8 codes may differ, because of rounding. A finite float may differ by
// `tolerance` times the sum of its magnitude and the root mean square of all finite elements.
// Infinity must be equal, with its sign.
std::string difference(const View& want, std::span<const std::byte> got, double tolerance);

// Returns true if kernels are so slow that their substitutes should replace them. Both lists have
// the seconds of the same cases. Cases with about equal times do not count.
bool is_much_slower(std::span<const double> ours, std::span<const double> substitute);

}  // namespace shale::kernel_check
