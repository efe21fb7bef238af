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

// Kernels that a GPU does not use, and why.
struct LeftOut {
  std::string kernel;  // as from names_of(): "attention_fwd/hopper"
  std::string reason;  // "wrong: attention_fwd/causal/...: ..."
};

// A slot whose remaining parts made a GPU fail or hang, and the parts that were left out then.
struct FailedKernel {
  std::string slot;
  kernels::KernelParts out = 0;
  friend bool operator==(const FailedKernel&, const FailedKernel&) = default;
};

// A kernel makes the GPU fail or hang: this process can use it no more.
class KernelFailure : public UnavailableError {
 public:
  KernelFailure(FailedKernel failed, const std::string& message)
      : UnavailableError(message), kernel(std::move(failed)) {}
  FailedKernel kernel;
};

struct CheckReport {
  std::vector<LeftOut> left_out;
  int64_t cases = 0;    // cases that ran
  int64_t not_run = 0;  // cases for which no time was left
  double seconds = 0;
};

struct CheckOptions {
  double limit_s = 20;  // no case begins later than this
  // Also runs one case of the sizes of GPT-2's layers of each kernel. Kernels with a substitute
  // that needs much less time there are left out.
  bool real_sizes = true;
  std::vector<std::string> slots = {};  // check only these; empty: all
  // Kernels that ended earlier checks: they are not run, and are left out as if they were wrong.
  std::vector<FailedKernel> failed = {};
  // For tests: seconds of a case with these parts left out, in place of measured ones.
  std::function<double(const KernelCase&, kernels::KernelParts out)> seconds = {};
};

// Runs every kernel of a GPU on small shapes and on those of a real model, and compares all that it
// writes with the same call on the CPU. The parts of a slot's kernels (kernels/registry.h) with
// which it is wrong are left out, as few as possible; a slot that stays wrong throws
// UnavailableError from then on. exec: with the backend's device and a stream; its tf32 counts.
// Waits for the stream. Throws KernelFailure for a kernel that cannot be replaced in this process.
CheckReport check_kernels(DeviceBackend& backend, const Exec& exec, const CheckOptions& options);

// The cases of check_kernels() for a device of this capability, small ones or those of real sizes.
std::vector<KernelCase> check_cases(int arch, bool real_sizes);

// Returns how `got`, the bytes of `want`'s elements on another device, differ, such as "element 17
// is 0.5, expected 0.25"; empty if they agree: integers exactly, u8 codes but for one in a hundred,
// which rounding may change, and floats within `tolerance` of their value and of the root mean
// square of all.
std::string difference(const View& want, std::span<const std::byte> got, double tolerance);

// Returns true if kernels are so much slower than a substitute that it is used in their place.
// Seconds of the same cases with both. Only cases count in which the two differ.
bool is_much_slower(std::span<const double> ours, std::span<const double> substitute);

}  // namespace shale::kernel_check
