#include "shale/bench/support/kernel_recorder.h"

#include "shale/base/error.h"
#include "shale/bench/support/timing.h"
#include "shale/kernels/registry.h"

namespace shale::bench {
namespace {

// Slots hold plain functions, which cannot carry a pointer to the recorder.
KernelRecorder* active = nullptr;

// What the slot held before.
template <auto& kSlot>
decltype(kSlot.get(DeviceType::kCpu)) replaced = nullptr;

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

// Stands in for a kernel.
template <auto& kSlot, typename Args>
void recorded(const Exec& exec, const Args& args) {
  KernelCall call = {.slot = kSlot.name(), .cost = cost_of(args), .dtype = operand_dtype(args)};
  if constexpr (std::is_same_v<Args, kernels::GemmArgs>) call.gemm = &args;
  active->make(exec, call, [&] { replaced<kSlot>(exec, args); });
}

template <auto& kSlot, typename Args>
void swap_entry(const kernels::Slot<Args>&, DeviceType device, bool record) {
  if (!kSlot.filled(device)) return;
  if (record) replaced<kSlot> = kSlot.get(device);
  kSlot.set(device, record ? &recorded<kSlot, Args> : replaced<kSlot>);
}

template <auto&... kSlots>
void swap(DeviceType device, bool record) {
  (swap_entry<kSlots>(kSlots, device, record), ...);
}

// tree_sum is left out: the communication thread calls it.
void swap_entries(DeviceType device, bool record) {
  using namespace kernels;
  swap<gemm, attention_fwd, attention_bwd, layer_norm_fwd, layer_norm_bwd, rms_norm_fwd,
       rms_norm_bwd, cross_entropy, embedding_fwd, embedding_bwd>(device, record);
  swap<axpby, mul, fill, copy, gelu_fwd, gelu_bwd, swiglu_fwd, dropout, column_sum, sum,
       sum_squares, clip_factor, update_loss_scale, random_normal>(device, record);
  swap<adamw, adamw_8bit, lion, sgd, adafactor_means, adafactor_average, adafactor_squares,
       adafactor>(device, record);
}

// Now, or it would undo what follows.
void register_kernels(DeviceType device) {
  switch (device) {
    case DeviceType::kCpu: return kernels::register_cpu_kernels();
    case DeviceType::kEmu: return kernels::emu::register_kernels();
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      return kernels::cuda::register_kernels();
#else
      break;
#endif
  }
  throw UnavailableError(
      cat("kernel recorder: device ", to_string(device), " is not part of this build"));
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

std::string gemm_name(const kernels::GemmArgs& args) {
  const MatmulSpec s = matmul_spec(args);
  std::string name =
      cat(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', ' ', s.m, 'x', s.n, 'x', s.k);
  name += epilogue_name(args);
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

KernelRecorder::KernelRecorder(DeviceType device) : device_(device) {
  if (active != nullptr) throw InternalError("kernel recorder: there is one already");
  register_kernels(device);
  active = this;
  swap_entries(device, true);
}

KernelRecorder::~KernelRecorder() {
  swap_entries(device_, false);
  active = nullptr;
}

void KernelRecorder::reset() {
  totals_.clear();
  gemms_.clear();
  gemm_calls_.clear();
}

void KernelRecorder::make(const Exec& exec, const KernelCall& call,
                          const std::function<void()>& run) {
  if (in_call_) return run();
  in_call_ = true;
  struct CallEnd {
    bool& in_call;
    ~CallEnd() { in_call = false; }
  };
  const CallEnd end{in_call_};
  if (observer_ != nullptr) {
    observer_->around(exec, call, run);
  } else if (call.gemm != nullptr) {
    add_gemm(*call.gemm, time_once(run));
  } else {
    run();
  }
  add(call.slot, call.cost);
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
  const auto keep = [&](const View& b, const View& c) {
    gemm_calls_.push_back(
        {.name = name, .spec = matmul_spec(args), .a = args.a.data, .b = b.data, .c = c.data});
  };
  keep(args.b, args.c);
  if (args.b_up.defined()) keep(args.b_up, args.aux_up);
}

}  // namespace shale::bench
