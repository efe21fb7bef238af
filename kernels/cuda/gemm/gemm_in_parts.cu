#include "shale/kernels/cuda/gemm/gemm_in_parts.h"

#include <array>

#include "shale/base/error.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/pointwise_graph.h"
#include "shale/kernels/reduce.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

// d * up * silu'(gate), where silu'(x) = s (1 + x (1 - s)) and s = sigmoid(x).
PointwiseProgram gate_gradient(DType dtype) {
  constexpr DType kF32 = DType::kF32;
  using enum PointwiseOp;
  PointwiseGraph graph;
  const int d = graph.input(dtype), up = graph.input(dtype), gate = graph.input(dtype);
  const int one = graph.constant(1), s = graph.apply(kSigmoid, kF32, {gate});
  const int rest = graph.apply(kSub, kF32, {one, s});
  const int bend = graph.apply(kAdd, kF32, {one, graph.apply(kMul, kF32, {gate, rest})});
  const int slope = graph.apply(kMul, kF32, {s, bend});
  const int both = graph.apply(kMul, kF32, {d, up});
  return graph.compile("gemm", {graph.apply(kMul, dtype, {both, slope})});
}

const PointwiseProgram* gate_gradient_of(DType dtype) {
  static const std::array programs = {gate_gradient(DType::kF32), gate_gradient(DType::kBF16),
                                      gate_gradient(DType::kF16)};
  return &programs[static_cast<size_t>(dtype)];
}

void check_dense(const GemmArgs& args) {
  for (const View* view : {&args.c, &args.aux, &args.residual, &args.aux_up, &args.c_up}) {
    if (!view->defined() || view->contiguous()) continue;
    throw UnavailableError(cat("gemm: a result is ", *view, " with strides ", view->strides,
                               ", expected a contiguous one, because the epilogue is not fused"));
  }
}

}  // namespace

void gemm_in_parts(const Exec& exec, const GemmArgs& args,
                   void (*plain)(const Exec&, const GemmArgs&)) {
  check_dense(args);
  const bool exact = args.epilogue == Epilogue::kGeluErf || args.epilogue == Epilogue::kDGeluErf;
  const auto multiply = [&](const View& b, const View& c, const View& bias) {
    plain(exec, {.a = args.a, .b = b, .c = c, .bias = bias, .plan = args.plan});
  };
  switch (args.epilogue) {
    case Epilogue::kNone: return plain(exec, args);
    case Epilogue::kGeluTanh:
    case Epilogue::kGeluErf: {
      const View before = args.aux.defined() ? args.aux : args.c;
      multiply(args.b, before, args.bias);
      run(exec, GeluFwdArgs{.x = before, .y = args.c, .exact = exact});
      if (args.residual.defined()) {
        run(exec, AxpbyArgs{.a = args.c, .b = args.residual, .y = args.c});
      }
      return;
    }
    case Epilogue::kDGeluTanh:
    case Epilogue::kDGeluErf:
      multiply(args.b, args.c, args.bias);
      run(exec, GeluBwdArgs{.x = args.aux, .dy = args.c, .dx = args.c, .exact = exact});
      if (args.residual.defined()) {
        run(exec, AxpbyArgs{.a = args.c, .b = args.residual, .y = args.c});
      }
      if (args.bias_grad.defined()) {
        run(exec, ColumnSumArgs{
                      .x = args.c, .y = args.bias_grad, .accumulate = args.accumulate_bias_grad});
      }
      return;
    case Epilogue::kSwiGlu:
      multiply(args.b, args.aux, {});
      multiply(args.b_up, args.aux_up, {});
      return run(exec, SwiGluFwdArgs{.gate = args.aux, .up = args.aux_up, .y = args.c});
    case Epilogue::kDSwiGlu:
      multiply(args.b, args.c_up, {});
      run(exec, PointwiseArgs{.program = gate_gradient_of(args.c.dtype),
                              .inputs = {args.c_up, args.aux_up, args.aux},
                              .outputs = {args.c}});
      return run(exec, SwiGluFwdArgs{.gate = args.aux, .up = args.c_up, .y = args.c_up});
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
