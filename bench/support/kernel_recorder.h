#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/cost.h"
#include "bench/support/vendor_matmul.h"

namespace shale::bench {

struct CallTotal {
  int64_t calls = 0;
  double seconds = 0;
  Cost cost;
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

// While it lives, it sees every call of a CPU kernel: how much work it was, and, for matrix
// products, how long each shape took. One at a time, and kernels are called from one thread.
class KernelRecorder {
 public:
  KernelRecorder();  // throws InternalError if there is one
  ~KernelRecorder();
  KernelRecorder(const KernelRecorder&) = delete;
  KernelRecorder& operator=(const KernelRecorder&) = delete;

  // Calls from now on count as part of this phase.
  void set_phase(std::string phase) { phase_ = std::move(phase); }
  void keep_gemm_calls(bool keep) { keep_gemm_calls_ = keep; }
  void reset();

  // Work by (phase, slot). Seconds are left at 0: the runtime's Tracer has them.
  using PhaseAndSlot = std::pair<std::string, std::string>;
  const std::map<PhaseAndSlot, CallTotal>& totals() const { return totals_; }
  const std::map<std::string, CallTotal>& gemms() const { return gemms_; }  // by gemm_name()
  const std::vector<GemmCall>& gemm_calls() const { return gemm_calls_; }

  void add(const char* slot, const Cost& cost);
  void add_gemm(const kernels::GemmArgs& args, double seconds);

 private:
  std::string phase_;
  bool keep_gemm_calls_ = false;
  std::map<PhaseAndSlot, CallTotal> totals_;
  std::map<std::string, CallTotal> gemms_;
  std::vector<GemmCall> gemm_calls_;
};

}  // namespace shale::bench
