#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "shale/bench/support/cost.h"
#include "shale/bench/support/vendor_matmul.h"
#include "shale/kernels/slot.h"

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
  std::string phase = {};  // in which it was called
};

// "NT 1024x3072x768": how a and b are stored (T: transposed), and m x n x k. Forward products are
// NT, those of dX NN, those of dW TN.
std::string shape_name(const MatmulSpec& spec);

// "NT 1024x3072x768 bias gelu": with what the epilogue does.
std::string gemm_name(const kernels::GemmArgs& args);

// Names what happens in a product's epilogue: " bias gelu", or nothing.
std::string epilogue_name(const kernels::GemmArgs& args);

// A call of a kernel, and the work that it is for.
struct KernelCall {
  const char* slot = nullptr;
  Cost cost{};
  DType dtype = DType::kF32;                // of the operands of what has FLOP
  const kernels::GemmArgs* gemm = nullptr;  // of a matrix product
};
// The work is that of cost_of(); of a slot that has none it counts as nothing.
KernelCall described(const kernels::SlotCall& call);

// Counts the calls that it observes: how much work they were, and how long each shape of matrix
// products took on the CPU. Calls may come from several threads; between steps, when there are
// none, it is read and told what to do.
class KernelRecorder final : public kernels::CallObserver {
 public:
  // Calls from now on count as part of this phase.
  void set_phase(std::string phase);
  void keep_gemm_calls(bool keep) { keep_gemm_calls_ = keep; }
  // Stands between this one and the kernel, for one that wants to time calls. Null: nobody.
  void set_inner(kernels::CallObserver* inner) { inner_ = inner; }
  void reset();

  // Work by (phase, slot). Seconds are left at 0: the runtime's Tracer has them.
  using PhaseAndSlot = std::pair<std::string, std::string>;
  const std::map<PhaseAndSlot, CallTotal>& totals() const { return totals_; }
  const std::map<std::string, CallTotal>& gemms() const { return gemms_; }  // by gemm_name()
  const std::vector<GemmCall>& gemm_calls() const { return gemm_calls_; }

  void around(const kernels::SlotCall& call) override;

 private:
  void add_gemm(const kernels::GemmArgs& args, const Cost& cost, double seconds);

  kernels::CallObserver* inner_ = nullptr;
  bool keep_gemm_calls_ = false;
  std::mutex mutex_;  // of what follows
  std::string phase_;
  std::map<PhaseAndSlot, CallTotal> totals_;
  std::map<std::string, CallTotal> gemms_;
  std::vector<GemmCall> gemm_calls_;
};

}  // namespace shale::bench
