#include "bench/support/kernel_recorder.h"

#include "bench/support/timing.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/gemm.h"
#include "kernels/registry.h"
#include "runtime/base/error.h"

namespace shale::bench {
namespace {

// Slots hold plain functions, which cannot carry a pointer to the recorder.
KernelRecorder* active = nullptr;

// Stands in for a kernel: notes the call, then makes it.
template <auto& kSlot, auto kKernel, typename Args>
void recorded(const Exec& exec, const Args& args) {
  if constexpr (std::is_same_v<Args, kernels::GemmArgs>) {
    const double seconds = time_once([&] { kKernel(exec, args); });
    active->add_gemm(args, seconds);
  } else {
    kKernel(exec, args);
  }
  active->add(kSlot.name(), cost_of(args));
}

template <auto& kSlot, auto kKernel, typename Args>
void swap_entry(const kernels::Slot<Args>&, bool record) {
  kSlot.set(DeviceType::kCpu, record ? &recorded<kSlot, kKernel, Args> : kKernel);
}

template <auto& kSlot, auto kKernel>
void swap(bool record) {
  swap_entry<kSlot, kKernel>(kSlot, record);
}

// tree_sum is left out: the communication thread calls it.
void swap_entries(bool record) {
  namespace cpu = kernels::cpu;
  swap<kernels::gemm, cpu::gemm>(record);
  swap<kernels::attention_fwd, cpu::attention_fwd>(record);
  swap<kernels::attention_bwd, cpu::attention_bwd>(record);
  swap<kernels::layer_norm_fwd, cpu::layer_norm_fwd>(record);
  swap<kernels::layer_norm_bwd, cpu::layer_norm_bwd>(record);
  swap<kernels::rms_norm_fwd, cpu::rms_norm_fwd>(record);
  swap<kernels::rms_norm_bwd, cpu::rms_norm_bwd>(record);
  swap<kernels::cross_entropy, cpu::cross_entropy>(record);
  swap<kernels::embedding_fwd, cpu::embedding_fwd>(record);
  swap<kernels::embedding_bwd, cpu::embedding_bwd>(record);
  swap<kernels::axpby, cpu::axpby>(record);
  swap<kernels::mul, cpu::mul>(record);
  swap<kernels::fill, cpu::fill>(record);
  swap<kernels::copy, cpu::copy>(record);
  swap<kernels::gelu_fwd, cpu::gelu_fwd>(record);
  swap<kernels::gelu_bwd, cpu::gelu_bwd>(record);
  swap<kernels::dropout, cpu::dropout>(record);
  swap<kernels::column_sum, cpu::column_sum>(record);
  swap<kernels::sum, cpu::sum>(record);
  swap<kernels::sum_squares, cpu::sum_squares>(record);
  swap<kernels::adamw, cpu::adamw>(record);
  swap<kernels::sgd, cpu::sgd>(record);
}

const char* epilogue_name(kernels::Epilogue epilogue) {
  switch (epilogue) {
    case kernels::Epilogue::kNone: return "";
    case kernels::Epilogue::kGeluTanh:
    case kernels::Epilogue::kGeluErf: return " gelu";
    case kernels::Epilogue::kDGeluTanh:
    case kernels::Epilogue::kDGeluErf: return " dgelu";
  }
  return "";
}

}  // namespace

std::string gemm_name(const kernels::GemmArgs& args) {
  const MatmulSpec s = matmul_spec(args);
  std::string name = cat(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', ' ', s.m, 'x', s.n,
                         'x', s.k);
  if (args.bias.defined()) name += " bias";
  name += epilogue_name(args.epilogue);
  if (args.residual.defined()) name += " residual";
  if (args.bias_grad.defined()) name += " bias_grad";
  if (args.accumulate) name += " accumulate";
  return name;
}

KernelRecorder::KernelRecorder() {
  if (active != nullptr) throw InternalError("kernel recorder: there is one already");
  kernels::register_cpu_kernels();  // now, or it would undo what follows
  active = this;
  swap_entries(true);
}

KernelRecorder::~KernelRecorder() {
  swap_entries(false);
  active = nullptr;
}

void KernelRecorder::reset() {
  totals_.clear();
  gemms_.clear();
  gemm_calls_.clear();
}

void KernelRecorder::add(const char* slot, const Cost& cost) {
  CallTotal& total = totals_[{phase_, slot}];
  ++total.calls;
  total.cost += cost;
}

void KernelRecorder::add_gemm(const kernels::GemmArgs& args, double seconds) {
  const std::string name = gemm_name(args);
  CallTotal& total = gemms_[name];
  ++total.calls;
  total.seconds += seconds;
  total.cost += cost_of(args);
  if (!keep_gemm_calls_) return;
  gemm_calls_.push_back({.name = name,
                         .spec = matmul_spec(args),
                         .a = args.a.data,
                         .b = args.b.data,
                         .c = args.c.data});
}

}  // namespace shale::bench
