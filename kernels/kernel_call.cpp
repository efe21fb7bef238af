#include "shale/kernels/kernel_call.h"

#include <tuple>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/overloaded.h"
#include "shale/kernels/slots.h"

namespace shale::kernels {
namespace {

DType operand_dtype(const GemmArgs& args) {
  return args.a.dtype;
}
DType operand_dtype(const GroupedGemmArgs& args) {
  return args.a.dtype;
}
DType operand_dtype(const Fp8GemmArgs& args) {
  return args.a.codes.dtype;
}
DType operand_dtype(const AttentionFwdArgs& args) {
  return args.q.dtype;
}
DType operand_dtype(const AttentionBwdArgs& args) {
  return args.q.dtype;
}
template <typename Args>
DType operand_dtype(const Args&) {
  return DType::kF32;  // unused: other kernels count no FLOP
}

template <typename Args>
bool describe(const SlotCall& call, const Slot<Args>& slot, KernelCall& out) {
  const Args* args = call.args_of(slot);
  if (args == nullptr) return false;
  if constexpr (requires { cost_of(*args); }) out.cost = cost_of(*args);
  out.dtype = operand_dtype(*args);
  if constexpr (requires { args->lse, args->q; }) {
    out.scores = double(args->q.size(0) * args->q.size(1) * args->q.size(2) * args->k.size(1));
    out.head_size = double(args->q.size(3));
  }
  return true;
}

// Outputs of the kernels that work on parameters, gradients and optimizer states.
using Views = std::vector<View>;
const Overloaded kOutputs = {
    [](const AxpbyArgs& a) { return Views{a.y}; },
    [](const MulArgs& a) { return Views{a.y}; },
    [](const FillArgs& a) { return Views{a.y}; },
    [](const CopyArgs& a) { return Views{a.y}; },
    [](const RandomNormalArgs& a) { return Views{a.y}; },
    [](const PointwiseArgs& a) { return Views(a.outputs.begin(), a.outputs.end()); },
    [](const TreeSumArgs& a) {
      Views views;
      for (void* const out : a.outputs) views.push_back(make_view(out, a.out_dtype, {a.count}));
      return views;
    },
    [](const SumArgs& a) { return Views{a.y}; },
    [](const ReduceDimsArgs& a) { return Views{a.y}; },
    [](const SumSquaresArgs&) { return Views{}; },  // writes a FixedSum, which is not a view
    // this kernel and update_loss_scale write StepState
    [](const ClipFactorArgs&) { return Views{}; },
    [](const LossScaleArgs&) { return Views{}; },
    [](const InverseNormArgs& a) { return Views{a.y}; },
    [](const GemmArgs& a) {
      return Views{a.c, a.c_up, a.aux, a.aux_up, a.bias_grad};
    },
    [](const AdamWArgs& a) {
      return Views{a.master, a.m, a.v, a.param};
    },
    [](const AdamW8bitArgs& a) { return Views{a.master, a.m, a.v, a.m_scale, a.v_scale, a.param}; },
    [](const LionArgs& a) {
      return Views{a.master, a.m, a.param};
    },
    [](const SgdArgs& a) {
      return Views{a.master, a.m, a.param};
    },
    [](const WeightAverageArgs& a) { return Views{a.average}; },
    [](const MuonMomentumArgs& a) {
      return Views{a.m, a.update};
    },
    [](const MuonArgs& a) {
      return Views{a.master, a.param};
    },
    [](const SignPackArgs& a) {
      return Views{a.owed, a.packed};
    },
    [](const SignMeanArgs& a) {
      return Views{a.owed, a.packed};
    },
    [](const SignUnpackArgs& a) { return Views{a.value}; },
    [](const AdafactorMeansArgs& a) {
      return Views{a.row_mean, a.col_mean};
    },
    [](const AdafactorAverageArgs& a) { return Views{a.mean}; },
    [](const AdafactorSquaresArgs& a) {
      return Views{a.v, a.sum};
    },
    [](const AdafactorArgs& a) {
      return Views{a.master, a.param};
    },
};

template <typename Args>
bool find_outputs(const SlotCall& call, const Slot<Args>& slot, Views& out) {
  const Args* args = call.args_of(slot);
  if (args == nullptr) return false;
  if constexpr (requires { kOutputs(*args); }) {
    out = kOutputs(*args);
  } else {
    throw InternalError(cat(slot.name(), ": kernel_call.cpp defines no outputs of this kernel"));
  }
  return true;
}

const char* activation_name(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone: return "";
    case Epilogue::kGeluTanh:
    case Epilogue::kGeluErf: return " gelu";
    case Epilogue::kDGeluTanh:
    case Epilogue::kDGeluErf: return " dgelu";
    case Epilogue::kSwiGlu: return " swiglu";
    case Epilogue::kDSwiGlu: return " dswiglu";
  }
  return "";
}

}  // namespace

KernelCall described(const SlotCall& call) {
  KernelCall out{.slot = call.slot().name(), .gemm = call.args_of(gemm)};
  std::apply([&](const auto&... slots) { (describe(call, slots, out) || ...); }, all_slots());
  return out;
}

std::vector<View> written_by(const SlotCall& call) {
  Views views;
  std::apply([&](const auto&... slots) { (find_outputs(call, slots, views) || ...); }, all_slots());
  return views;
}

std::string product_shape(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k) {
  return cat(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', ' ', m, 'x', n, 'x', k);
}

std::string gemm_name(const GemmArgs& args) {
  std::string name = product_shape(args.a.stride(1) != 1, args.b.stride(1) != 1, args.a.size(0),
                                   args.b.size(1), args.a.size(1)) +
                     epilogue_name(args);
  if (args.accumulate) name += " accumulate";
  return name;
}

std::string epilogue_name(const GemmArgs& args) {
  std::string name;
  if (args.bias.defined()) name += " bias";
  name += activation_name(args.epilogue);
  if (args.residual.defined()) name += " residual";
  if (args.bias_grad.defined()) name += " bias_grad";
  return name;
}

}  // namespace shale::kernels
