#include "shale/bench/support/kernel_recorder.h"

#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/bench/support/timing.h"
#include "shale/kernels/slots.h"

namespace shale::bench {
namespace {

DType operand_dtype(const kernels::GemmArgs& args) {
  return args.a.dtype;
}
DType operand_dtype(const kernels::AttentionFwdArgs& args) {
  return args.q.dtype;
}
DType operand_dtype(const kernels::AttentionBwdArgs& args) {
  return args.q.dtype;
}
template <typename Args>
DType operand_dtype(const Args&) {
  return DType::kF32;  // it has no FLOP
}

template <typename Args>
bool describe(const kernels::SlotCall& call, const kernels::Slot<Args>& slot, KernelCall& out) {
  const Args* args = call.args_of(slot);
  if (args == nullptr) return false;
  if constexpr (requires { cost_of(*args); }) out.cost = cost_of(*args);
  out.dtype = operand_dtype(*args);
  return true;
}

const char* activation_name(kernels::Epilogue epilogue) {
  switch (epilogue) {
    case kernels::Epilogue::kNone: return "";
    case kernels::Epilogue::kGeluTanh:
    case kernels::Epilogue::kGeluErf: return " gelu";
    case kernels::Epilogue::kDGeluTanh:
    case kernels::Epilogue::kDGeluErf: return " dgelu";
    case kernels::Epilogue::kSwiGlu: return " swiglu";
    case kernels::Epilogue::kDSwiGlu: return " dswiglu";
  }
  return "";
}

}  // namespace

std::string shape_name(const MatmulSpec& s) {
  return cat(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', ' ', s.m, 'x', s.n, 'x', s.k);
}

std::string gemm_name(const kernels::GemmArgs& args) {
  std::string name = shape_name(matmul_spec(args)) + epilogue_name(args);
  if (args.accumulate) name += " accumulate";
  return name;
}

std::string epilogue_name(const kernels::GemmArgs& args) {
  std::string name;
  if (args.bias.defined()) name += " bias";
  name += activation_name(args.epilogue);
  if (args.residual.defined()) name += " residual";
  if (args.bias_grad.defined()) name += " bias_grad";
  return name;
}

KernelCall described(const kernels::SlotCall& call) {
  KernelCall out{.slot = call.slot().name(), .gemm = call.args_of(kernels::gemm)};
  std::apply([&](const auto&... slots) { (describe(call, slots, out) || ...); },
             kernels::all_slots());
  return out;
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
  const KernelCall kernel = described(call);
  const double seconds = time_once([&] { inner_ == nullptr ? call.run() : inner_->around(call); });
  const std::lock_guard lock(mutex_);
  CallTotal& total = totals_[{phase_, kernel.slot}];
  ++total.calls;
  total.cost += kernel.cost;
  const bool timed = kernel.gemm != nullptr && inner_ == nullptr;
  if (timed) add_gemm(*kernel.gemm, kernel.cost, seconds);
}

void KernelRecorder::add_gemm(const kernels::GemmArgs& args, const Cost& cost, double seconds) {
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
