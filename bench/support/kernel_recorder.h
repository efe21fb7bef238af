#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shale/bench/support/conv_spec.h"
#include "shale/kernels/kernel_call.h"
#include "shale/runtime/kernel_check/matmul_spec.h"

namespace shale::bench {

using namespace kernel_check;

struct CallTotal {
  int64_t calls = 0;
  double seconds = 0;
  kernels::Cost cost{};
};

using ProductSpec = std::variant<MatmulSpec, ConvSpec>;

// A GEMM or convolution of a step, with the addresses of its operands.
struct ProductCall {
  std::string name;  // gemm_name() or ConvSpec::name()
  ProductSpec spec;
  // operands of a GEMM; for a convolution ConvCall's in, dy and out, one of which is null
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::string phase = {};  // phase of the step
};

// Returns product_shape() of the specification's GEMM.
std::string shape_name(const MatmulSpec& spec);

// Counts the work of observed kernel calls, and on the CPU the time of each GEMM and convolution
// shape. Calls may come from several threads. Read and configure it between steps, when there are
// no calls.
class KernelRecorder final : public kernels::CallObserver {
 public:
  // Assigns later calls to this phase.
  void set_phase(std::string phase);
  void keep_products(bool keep) { keep_products_ = keep; }
  // Inserts an observer between this one and the kernel, for timing; null removes it.
  void set_inner(kernels::CallObserver* inner) { inner_ = inner; }
  void reset();

  // Returns the work by (phase, slot). Seconds are 0, because the runtime's Tracer has them.
  using PhaseAndSlot = std::pair<std::string, std::string>;
  const std::map<PhaseAndSlot, CallTotal>& totals() const { return totals_; }
  // Returns the totals by ProductCall::name.
  const std::map<std::string, CallTotal>& products() const { return products_; }
  const std::vector<ProductCall>& product_calls() const { return product_calls_; }

  void around(const kernels::SlotCall& call) override;

 private:
  void add_product(const std::string& name, const kernels::Cost& cost, double seconds);
  void keep_gemm(const std::string& name, const kernels::GemmArgs& args);

  kernels::CallObserver* inner_ = nullptr;
  bool keep_products_ = false;
  std::mutex mutex_;  // protects the following members
  std::string phase_;
  std::map<PhaseAndSlot, CallTotal> totals_;
  std::map<std::string, CallTotal> products_;
  std::vector<ProductCall> product_calls_;
};

}  // namespace shale::bench
