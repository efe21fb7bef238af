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
  gemms_.clear();
  gemm_calls_.clear();
}

void KernelRecorder::around(const kernels::SlotCall& call) {
  const kernels::KernelCall kernel = described(call);
  const double seconds = time_once([&] { inner_ == nullptr ? call.run() : inner_->around(call); });
  const std::lock_guard lock(mutex_);
  CallTotal& total = totals_[{phase_, kernel.slot}];
  ++total.calls;
  total.cost += kernel.cost;
  const bool timed = kernel.gemm != nullptr && inner_ == nullptr;
  if (timed) add_gemm(*kernel.gemm, kernel.cost, seconds);
}

void KernelRecorder::add_gemm(const kernels::GemmArgs& args, const kernels::Cost& cost,
                              double seconds) {
  const std::string name = gemm_name(args);
  CallTotal& total = gemms_[name];
  ++total.calls;
  total.seconds += seconds;
  total.cost += cost;
  if (!keep_gemm_calls_) return;
  const auto keep = [&](const View& b, const View& c) {
    gemm_calls_.push_back({.name = name,
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
