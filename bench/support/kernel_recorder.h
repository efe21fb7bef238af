#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shale/bench/support/conv_spec.h"
#include "shale/bench/support/matmul_spec.h"
#include "shale/kernels/kernel_call.h"

namespace shale::bench {

struct CallTotal {
  int64_t calls = 0;
  double seconds = 0;
  kernels::Cost cost{};
};

using ProductSpec = std::variant<MatmulSpec, ConvSpec>;

// One matrix product or convolution of a step, with the addresses it worked on.
struct ProductCall {
  std::string name;  // gemm_name(), ConvSpec::name()
  ProductSpec spec;
  const void* a = nullptr;  // of a convolution ConvCall's in, dy and out, of which one is null
  const void* b = nullptr;
  void* c = nullptr;
  std::string phase = {};  // in which it was called
};

// product_shape() of a specification.
std::string shape_name(const MatmulSpec& spec);

// Counts the calls that it observes: how much work they were, and how long each shape of
// products and convolutions took on the CPU. Calls may come from several threads; between steps,
// when there are none, it is read and told what to do.
class KernelRecorder final : public kernels::CallObserver {
 public:
  // Calls from now on count as part of this phase.
  void set_phase(std::string phase);
  void keep_products(bool keep) { keep_products_ = keep; }
  // Stands between this one and the kernel, for one that wants to time calls. Null: nobody.
  void set_inner(kernels::CallObserver* inner) { inner_ = inner; }
  void reset();

  // Work by (phase, slot). Seconds are left at 0: the runtime's Tracer has them.
  using PhaseAndSlot = std::pair<std::string, std::string>;
  const std::map<PhaseAndSlot, CallTotal>& totals() const { return totals_; }
  // By ProductCall::name.
  const std::map<std::string, CallTotal>& products() const { return products_; }
  const std::vector<ProductCall>& product_calls() const { return product_calls_; }

  void around(const kernels::SlotCall& call) override;

 private:
  void add_product(const std::string& name, const kernels::Cost& cost, double seconds);
  void keep_gemm(const std::string& name, const kernels::GemmArgs& args);

  kernels::CallObserver* inner_ = nullptr;
  bool keep_products_ = false;
  std::mutex mutex_;  // of what follows
  std::string phase_;
  std::map<PhaseAndSlot, CallTotal> totals_;
  std::map<std::string, CallTotal> products_;
  std::vector<ProductCall> product_calls_;
};

}  // namespace shale::bench
