#include "shale/bench/support/kernel_recorder.h"

#include <utility>

#include "shale/bench/support/timing.h"

namespace shale::bench {
std::string shape_name(const MatmulSpec& s) {
  return kernels::product_shape(s.a_transposed, s.b_transposed, s.m, s.n, s.k);
}

void KernelRecorder::set_phase(std::string phase) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
}

void KernelRecorder::reset() {
  totals_.clear();
  products_.clear();
  product_calls_.clear();
}

void KernelRecorder::around(const kernels::SlotCall& call) {
  const kernels::KernelCall kernel = described(call);
  const double seconds = time_once([&] { inner_ == nullptr ? call.run() : inner_->around(call); });
  const std::lock_guard lock(mutex_);
  CallTotal& total = totals_[{phase_, kernel.slot}];
  ++total.calls;
  total.cost += kernel.cost;
  if (inner_ != nullptr) return;
  if (kernel.gemm != nullptr) {
    const std::string name = gemm_name(*kernel.gemm);
    add_product(name, kernel.cost, seconds);
    if (keep_products_) keep_gemm(name, *kernel.gemm);
  } else if (const auto conv = conv_call(call)) {
    const std::string name = conv->spec.name();
    add_product(name, kernel.cost, seconds);
    if (!keep_products_) return;
    product_calls_.push_back({.name = name,
                              .spec = conv->spec,
                              .a = conv->in,
                              .b = conv->dy,
                              .c = conv->out,
                              .phase = phase_});
  }
}

void KernelRecorder::add_product(const std::string& name, const kernels::Cost& cost,
                                 double seconds) {
  CallTotal& total = products_[name];
  ++total.calls;
  total.seconds += seconds;
  total.cost += cost;
}

void KernelRecorder::keep_gemm(const std::string& name, const kernels::GemmArgs& args) {
  const auto keep = [&](const View& b, const View& c) {
    product_calls_.push_back({.name = name,
                              .spec = matmul_spec(args),
                              .a = args.a.data,
                              .b = b.data,
                              .c = c.data,
                              .phase = phase_});
  };
  keep(args.b, args.c);
  if (args.b_up.defined()) keep(args.b_up, args.aux_up);
}

}  // namespace shale::bench
