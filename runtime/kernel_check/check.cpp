#include "shale/runtime/kernel_check/check.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "shale/base/clock.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/runtime/kernel_check/kernel_parts.h"

namespace shale::kernel_check {
namespace {

using kernels::KernelParts;
using Clock = std::chrono::steady_clock;

template <typename T>
double read(const std::byte* bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * int64_t{sizeof(T)}, sizeof(T));
  return static_cast<double>(static_cast<float>(value));
}

double read(const std::byte* bytes, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32: return read<float>(bytes, i);
    case DType::kBF16: return read<bf16>(bytes, i);
    default: return read<f16>(bytes, i);
  }
}

bool holds_floats(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Relative error that results may have: several roundings, and functions that a GPU approximates.
// It is large, because the check must never reject a correct kernel; small errors stay undetected.
double tolerance_of(DType dtype, bool tf32) {
  switch (dtype) {
    case DType::kBF16: return 0x1p-5;
    case DType::kF16: return 0x1p-8;
    default: return tf32 ? 0x1p-7 : 0x1p-9;
  }
}

// State of the check of one slot.
struct SlotCheck {
  std::string slot;
  std::vector<KernelCase> cases;  // cases that ran so far
  std::vector<KernelParts> tried = {0};
  KernelParts out = 0;
  std::string reason;

  // Returns the smallest subset of `parts` that was not tried yet; kEveryKernel if all were.
  KernelParts next(KernelParts parts) const {
    KernelParts best = kernels::kEveryKernel;
    for (KernelParts set = 1; set <= kernels::kOptionalParts; ++set) {
      if ((set & ~parts) != 0 || std::ranges::find(tried, set) != tried.end()) continue;
      if (best == kernels::kEveryKernel || std::popcount(set) < std::popcount(best)) best = set;
    }
    return best;
  }
};

class Checker {
 public:
  Checker(DeviceBackend& backend, const Exec& exec, const CheckOptions& options)
      : options_(options),
        gpu_(backend, exec.stream, exec.threads),
        on_gpu_(gpu_, without_observers(exec)),
        cpu_backend_(make_cpu_backend()),
        cpu_(*cpu_backend_, nullptr, cpu_counts().bound),
        on_cpu_(cpu_, {.device = cpu_.device(), .threads = cpu_.threads(), .tf32 = exec.tf32}) {}

  CheckReport run() {
    run_all(check_cases(gpu_.device().arch, /*real_sizes=*/false), /*real_sizes=*/false);
    if (options_.real_sizes) {
      run_all(check_cases(gpu_.device().arch, /*real_sizes=*/true), /*real_sizes=*/true);
    }
    for (const SlotCheck& slot : slots_) {
      for (std::string& name : names_of(slot.slot, slot.out)) {
        report_.left_out.push_back({std::move(name), slot.reason});
      }
    }
    report_.seconds = seconds_since(begin_);
    return report_;
  }

 private:
  static Exec without_observers(Exec exec) {
    exec.tracer = nullptr, exec.observer = nullptr;
    return exec;
  }

  SlotCheck& slot_named(const std::string& name) {
    const auto found = std::ranges::find(slots_, name, &SlotCheck::slot);
    return found != slots_.end() ? *found : slots_.emplace_back(SlotCheck{.slot = name});
  }

  // Runs the cases grouped by slot. Slots run in the order of their first case, so GEMMs are
  // checked before convolutions, which may use them.
  void run_all(std::vector<KernelCase> cases, bool real_sizes) {
    if (!options_.slots.empty()) {
      std::erase_if(cases, [&](const KernelCase& one) {
        return std::ranges::find(options_.slots, one.slot) == options_.slots.end();
      });
    }
    while (!cases.empty()) {
      const std::string name = cases.front().slot;
      const auto others = std::stable_partition(
          cases.begin(), cases.end(), [&](const KernelCase& one) { return one.slot == name; });
      const std::vector<KernelCase> own(cases.begin(), others);
      cases.erase(cases.begin(), others);
      SlotCheck& slot = slot_named(name);
      if ((slot.out & kernels::kEveryKernel) != 0) continue;
      const std::string fault = first_fault(slot, own);
      if (!fault.empty()) replace(slot, fault);
      if (options_.seconds || (real_sizes && gpu_.device().type == DeviceType::kCuda)) {
        compare_times(slot, own);
      }
    }
  }

  std::string first_fault(SlotCheck& slot, const std::vector<KernelCase>& cases) {
    std::string first;
    for (const KernelCase& one : cases) {
      if (seconds_since(begin_) > options_.limit_s) {
        ++report_.not_run;
        continue;
      }
      slot.cases.push_back(one);
      ++report_.cases;
      if (first.empty()) first = fault_of(slot, one);
    }
    return first;
  }

  void replace(SlotCheck& slot, const std::string& fault) {
    slot.reason = "wrong: " + fault;
    std::string still = fault;
    while (!still.empty()) {
      slot.out = slot.next(parts_of(gpu_.device(), slot.slot));
      slot.tried.push_back(slot.out);
      leave_out(gpu_.device(), slot.slot, slot.out);
      if ((slot.out & kernels::kEveryKernel) != 0) return;
      still.clear();
      for (const KernelCase& one : slot.cases) {
        still = fault_of(slot, one);
        if (!still.empty()) break;
      }
    }
  }

  // Runs a case on both devices and describes a wrong result. Returns an empty string if the
  // results agree, or if the device has no such kernel.
  std::string fault_of(const SlotCheck& slot, const KernelCase& one) {
    const FailedKernel here = {slot.slot, slot.out};
    if (std::ranges::find(options_.failed, here) != options_.failed.end()) {
      return "made the GPU fail or hang in an earlier check";
    }
    const PreparedCase want = one.prepare(on_cpu_);
    try {
      want.run();
    } catch (const DTypeError&) {
      return "";  // some kernels do not support fp16
    }
    const PreparedCase got = one.prepare(on_gpu_);
    try {
      got.run();
      wait_for(here, one);
    } catch (const KernelFailure&) {
      throw;
    } catch (const UnavailableError&) {
      return "";
    } catch (const Error& error) {
      return failed_or_wrong(here, cat(one.name, ": ", error.what()));
    }
    const double tolerance = tolerance_of(one.dtype, on_gpu_.exec().tf32);
    for (size_t i = 0; i < want.operands.size(); ++i) {
      const View& view = got.operands[i];
      std::vector<std::byte> bytes(static_cast<size_t>(view.bytes()));
      gpu_.backend().copy(bytes.data(), view.data, bytes.size(), gpu_.stream());
      gpu_.synchronize();
      const std::string text = difference(want.operands[i], bytes, tolerance);
      if (!text.empty()) return cat(one.name, ": operand ", i + 1, ", ", view, ": ", text);
    }
    return "";
  }

  // Waits for the GPU to finish the kernel, up to a time limit.
  void wait_for(const FailedKernel& kernel, const KernelCase& one) {
    constexpr double kLimit_s = 10;
    DeviceBackend& backend = gpu_.backend();
    if (gpu_.device().type != DeviceType::kCuda) return gpu_.synchronize();
    void* const event = backend.record_event(gpu_.stream());
    const Clock::time_point begin = Clock::now();
    while (!backend.event_done(event)) {
      if (seconds_since(begin) > kLimit_s) {
        throw KernelFailure(kernel, cat(one.name, ": no result after ", kLimit_s, " s"));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    backend.destroy_event(event);
  }

  // Returns the error message of a kernel if the GPU still works; else throws KernelFailure.
  std::string failed_or_wrong(const FailedKernel& kernel, const std::string& error) {
    try {
      int number = 0;
      DeviceMemory memory(gpu_, sizeof number);
      gpu_.backend().copy(memory.data(), &number, sizeof number, gpu_.stream());
      gpu_.synchronize();
    } catch (const Error&) {
      throw KernelFailure(kernel, error);
    }
    return error;
  }

  // ---- Times, on GPUs only ----

  double seconds_of(const KernelCase& one, KernelParts out) {
    constexpr int kRuns = 5, kCalls = 10;
    if (options_.seconds) return options_.seconds(one, out);
    const PreparedCase prepared = one.prepare(on_gpu_);
    double best = std::numeric_limits<double>::infinity();
    try {
      for (int run = 0; run <= kRuns; ++run) {  // run 0 loads the kernel and is not timed
        const Clock::time_point begin = Clock::now();
        for (int call = 0; call < kCalls; ++call) prepared.run();
        gpu_.synchronize();
        if (run > 0) best = std::min(best, seconds_since(begin) / kCalls);
      }
    } catch (const UnavailableError&) {
    }
    return best;
  }

  std::vector<double> seconds_without(const SlotCheck& slot, const std::vector<KernelCase>& cases,
                                      KernelParts out) {
    leave_out(gpu_.device(), slot.slot, out);
    std::vector<double> seconds;
    for (const KernelCase& one : cases) seconds.push_back(seconds_of(one, out));
    return seconds;
  }

  void compare_times(SlotCheck& slot, const std::vector<KernelCase>& cases) {
    if ((slot.out & kernels::kEveryKernel) != 0) return;
    const KernelParts parts = parts_of(gpu_.device(), slot.slot);
    for (const KernelParts part :
         {kernels::kHopperKernels, kernels::kVendorKernels, kernels::kFusedKernels}) {
      const KernelParts fewer = slot.out | part;
      if ((parts & part) == 0 || fewer == slot.out) continue;
      if (std::ranges::find(slot.tried, fewer) != slot.tried.end()) continue;
      if (seconds_since(begin_) > options_.limit_s) return;
      const std::vector<double> with = seconds_without(slot, cases, slot.out);
      const std::vector<double> without = seconds_without(slot, cases, fewer);
      leave_out(gpu_.device(), slot.slot, slot.out);
      if (!is_much_slower(with, without)) continue;
      const KernelParts before = slot.out;
      replace_slow(slot, fewer);
      if (slot.out == before) continue;
      slot.reason += cat(slot.reason.empty() ? "" : "; ", "slower than its substitute");
    }
  }

  // Leaves out the parts `fewer` because they are slow, if the kernels that replace them give
  // correct results.
  void replace_slow(SlotCheck& slot, KernelParts fewer) {
    slot.tried.push_back(fewer);
    leave_out(gpu_.device(), slot.slot, fewer);
    for (const KernelCase& one : slot.cases) {
      if (fault_of({.slot = slot.slot, .out = fewer}, one).empty()) continue;
      leave_out(gpu_.device(), slot.slot, slot.out);
      return;
    }
    slot.out = fewer;
  }

  const CheckOptions options_;
  const Clock::time_point begin_ = Clock::now();
  KernelDevice gpu_;
  KernelBench on_gpu_;
  std::unique_ptr<DeviceBackend> cpu_backend_;
  KernelDevice cpu_;
  KernelBench on_cpu_;
  std::vector<SlotCheck> slots_;
  CheckReport report_;
};

}  // namespace

std::string difference(const View& want, std::span<const std::byte> got, double tolerance) {
  const auto* const bytes = static_cast<const std::byte*>(want.data);
  const int64_t count = want.numel();
  if (!holds_floats(want.dtype)) {
    constexpr int64_t kRarely = 100;
    int64_t differing = 0;
    for (size_t i = 0; i < got.size(); ++i) differing += got[i] != bytes[i] ? 1 : 0;
    if (differing == 0 || (want.dtype == DType::kU8 && differing <= count / kRarely)) return "";
    const auto at = std::mismatch(got.begin(), got.end(), bytes).first - got.begin();
    return cat("byte ", at, " is ", std::to_integer<int>(got[static_cast<size_t>(at)]),
               ", expected ", std::to_integer<int>(bytes[at]));
  }
  double squares = 0, finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = read(bytes, want.dtype, i);
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++finite;
  }
  const double usual = std::sqrt(squares / std::max(finite, 1.0));
  for (int64_t i = 0; i < count; ++i) {
    const double expected = read(bytes, want.dtype, i), found = read(got.data(), want.dtype, i);
    if (found == expected || (std::isnan(found) && std::isnan(expected))) continue;
    if (std::isfinite(expected) &&
        std::abs(found - expected) <= tolerance * (std::abs(expected) + usual)) {
      continue;
    }
    return cat("element ", i, " is ", static_cast<float>(found), ", expected ",
               static_cast<float>(expected));
  }
  return "";
}

bool is_much_slower(std::span<const double> ours, std::span<const double> substitute) {
  constexpr double kDiffers = 1.1, kMuchSlower = 1.5;
  double own = 0, other = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto [less, more] = std::minmax(ours[i], substitute[i]);
    if (!std::isfinite(more) || more < kDiffers * less) continue;
    own += ours[i], other += substitute[i];
  }
  return own > kMuchSlower * other;
}

CheckReport check_kernels(DeviceBackend& backend, const Exec& exec, const CheckOptions& options) {
  return Checker(backend, exec, options).run();
}

}  // namespace shale::kernel_check
