#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shale/bench/support/cost.h"
#include "shale/bench/support/vendor_matmul.h"

namespace shale::bench {

struct CallTotal {
  int64_t calls = 0;
  double seconds = 0;
  Cost cost{};
};

// One matrix product of a step, with the addresses it worked on.
struct GemmCall {
  std::string name;  // gemm_name()
  MatmulSpec spec;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};

// "NT 1024x3072x768 bias gelu": how a and b are stored (T: transposed), m x n x k, and what the
// epilogue does. Forward products are NT, those of dX NN, those of dW TN.
std::string gemm_name(const kernels::GemmArgs& args);

// What of a product's arguments happens in its epilogue: " bias gelu", or nothing.
std::string epilogue_name(const kernels::GemmArgs& args);

// A call of a kernel, as it is made.
struct KernelCall {
  const char* slot = nullptr;
  Cost cost{};
  DType dtype = DType::kF32;                // of the operands of what has FLOP
  const kernels::GemmArgs* gemm = nullptr;  // of a matrix product
};

// Stands around every call that a recorder sees, for one that wants to time it.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Has to call `run`, which makes the call, once at least.
  virtual void around(const Exec& exec, const KernelCall& call,
                      const std::function<void()>& run) = 0;
};

// While it lives, it sees every call of a kernel of one device type: how much work it was, and, on
// the CPU, how long each shape of matrix products took. One at a time, and kernels are called from
// one thread.
class KernelRecorder {
 public:
  // Throws InternalError if there is one, UnavailableError where this build lacks the device.
  explicit KernelRecorder(DeviceType device = DeviceType::kCpu);
  ~KernelRecorder();
  KernelRecorder(const KernelRecorder&) = delete;
  KernelRecorder& operator=(const KernelRecorder&) = delete;

  // Calls from now on count as part of this phase.
  void set_phase(std::string phase) { phase_ = std::move(phase); }
  void keep_gemm_calls(bool keep) { keep_gemm_calls_ = keep; }
  void set_observer(CallObserver* observer) { observer_ = observer; }  // null: none
  void reset();

  // Work by (phase, slot). Seconds are left at 0: the runtime's Tracer has them.
  using PhaseAndSlot = std::pair<std::string, std::string>;
  const std::map<PhaseAndSlot, CallTotal>& totals() const { return totals_; }
  const std::map<std::string, CallTotal>& gemms() const { return gemms_; }  // by gemm_name()
  const std::vector<GemmCall>& gemm_calls() const { return gemm_calls_; }

  // Makes a call by `run`, and counts it; what a kernel calls itself is part of its own call.
  void make(const Exec& exec, const KernelCall& call, const std::function<void()>& run);

 private:
  void add(const char* slot, const Cost& cost);
  void add_gemm(const kernels::GemmArgs& args, double seconds);

  DeviceType device_;
  CallObserver* observer_ = nullptr;
  bool in_call_ = false;
  std::string phase_;
  bool keep_gemm_calls_ = false;
  std::map<PhaseAndSlot, CallTotal> totals_;
  std::map<std::string, CallTotal> gemms_;
  std::vector<GemmCall> gemm_calls_;
};

}  // namespace shale::bench
