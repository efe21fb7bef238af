#include "shale/kernels/kernel_call.h"

#include <tuple>

#include "shale/base/error.h"
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
  return DType::kF32;  // it has no FLOP
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
