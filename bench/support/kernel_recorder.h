#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "shale/bench/support/vendor_matmul.h"
#include "shale/kernels/kernel_call.h"

namespace shale::bench {

struct CallTotal {
  int64_t calls = 0;
  double seconds = 0;
  kernels::Cost cost{};
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

// product_shape() of a specification.
std::string shape_name(const MatmulSpec& spec);

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
  void add_gemm(const kernels::GemmArgs& args, const kernels::Cost& cost, double seconds);

  kernels::CallObserver* inner_ = nullptr;
  bool keep_gemm_calls_ = false;
  std::mutex mutex_;  // of what follows
  std::string phase_;
  std::map<PhaseAndSlot, CallTotal> totals_;
  std::map<std::string, CallTotal> gemms_;
  std::vector<GemmCall> gemm_calls_;
};

}  // namespace shale::bench
