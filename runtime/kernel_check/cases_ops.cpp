#include <array>

#include "shale/kernels/pointwise_graph.h"
#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {
namespace {

using kernels::PointwiseArgs;
using kernels::PointwiseGraph;
using kernels::PointwiseOp;
using kernels::PointwiseProgram;

// Returns the program for a dtype. Programs are static, because cases keep pointers to them.
template <class Make>
const PointwiseProgram* program_for(DType dtype, const Make& make) {
  static const std::array<PointwiseProgram, 3> programs = {make(DType::kF32), make(DType::kBF16),
                                                           make(DType::kF16)};
  return &programs[static_cast<size_t>(dtype)];
}

template <PointwiseOp op>
const PointwiseProgram* binary_program(DType dtype) {
  return program_for(dtype, [](DType d) {
    PointwiseGraph graph;
    const int a = graph.input(d), b = graph.input(d);
    return graph.compile("bench", {graph.apply(op, d, {a, b})});
  });
}

template <PointwiseOp op>
const PointwiseProgram* unary_program(DType dtype) {
  return program_for(dtype, [](DType d) {
    PointwiseGraph graph;
    return graph.compile("bench", {graph.apply(op, d, {graph.input(d)})});
  });
}

// Returns the program for tanh(x * scale + bias) * sigmoid(gate).
const PointwiseProgram* gate_program(DType dtype) {
  return program_for(dtype, [](DType d) {
    PointwiseGraph graph;
    const int x = graph.input(d), scale = graph.input(d), bias = graph.input(d);
    const int gate = graph.input(d);
    const int scaled = graph.apply(PointwiseOp::kMul, d, {x, scale});
    const int sum = graph.apply(PointwiseOp::kAdd, d, {scaled, bias});
    const int h = graph.apply(PointwiseOp::kTanh, d, {sum});
    const int s = graph.apply(PointwiseOp::kSigmoid, d, {gate});
    return graph.compile("bench", {graph.apply(PointwiseOp::kMul, d, {h, s})});
  });
}

View broadcast_row(View row, int64_t rows) {
  row.shape = {rows, row.shape[0]}, row.strides = {0, 1};
  return row;
}

// Operands of the gate, and the intermediate results when its ops run separately.
struct GateArgs {
  View x, scale, bias, gate, y;
  std::array<View, 4> between;

  PointwiseArgs whole() const {
    return {.program = gate_program(y.dtype),
            .inputs = {x, scale, bias, gate},
            .outputs = {y},
            .compiled = true};
  }
};

kernels::Cost cost_of(const GateArgs& a) {
  // The cost is that of the fused program, without intermediate results.
  return kernels::cost_of(a.whole());
}

Plain plain_operands(const GateArgs& a) {
  return kernel_check::plain_operands(a.whole());
}

GateArgs make_gate(Operands& o, DType dtype, int64_t rows, int64_t cols) {
  GateArgs a{.x = o.floats(dtype, {rows, cols}, 3),
             .scale = broadcast_row(o.floats(dtype, {cols}), rows),
             .bias = broadcast_row(o.floats(dtype, {cols}), rows),
             .gate = o.floats(dtype, {rows, cols}, 3),
             .y = o.zeros(dtype, {rows, cols}),
             .between = {}};
  for (View& view : a.between) view = o.zeros(dtype, {rows, cols});
  return a;
}

void run_chain(const Exec& exec, const GateArgs& a) {
  const DType d = a.y.dtype;
  const auto step = [&](const PointwiseProgram* program, const View& x, const View& b,
                        const View& y) {
    kernels::pointwise(exec, {.program = program, .inputs = {x, b}, .outputs = {y}});
  };
  step(binary_program<PointwiseOp::kMul>(d), a.x, a.scale, a.between[0]);
  step(binary_program<PointwiseOp::kAdd>(d), a.between[0], a.bias, a.between[1]);
  step(unary_program<PointwiseOp::kTanh>(d), a.between[1], {}, a.between[2]);
  step(unary_program<PointwiseOp::kSigmoid>(d), a.gate, {}, a.between[3]);
  step(binary_program<PointwiseOp::kMul>(d), a.between[2], a.between[3], a.y);
}

}  // namespace

void Cases::add_pointwise() {
  const int64_t T = s_.tokens(), C = s_.width;
  const DType dtype = dtype_;
  add<PointwiseArgs>("add_row", kernels::pointwise, [=](Operands& o) {
    return PointwiseArgs{
        .program = binary_program<PointwiseOp::kAdd>(dtype),
        .inputs = {o.floats(dtype, {T, C}), broadcast_row(o.floats(dtype, {C}), T)},
        .outputs = {o.zeros(dtype, {T, C})}};
  });
  add<PointwiseArgs>("exp", kernels::pointwise, [=](Operands& o) {
    return PointwiseArgs{.program = unary_program<PointwiseOp::kExp>(dtype),
                         .inputs = {o.floats(dtype, {T, C}, 3)},
                         .outputs = {o.zeros(dtype, {T, C})}};
  });
  // Adds the chain of five ops, as separate kernels and as one.
  out_.push_back(make_case<GateArgs>(named("chain_of_5"), kernels::pointwise.name(), run_chain,
                                     dtype,
                                     [=](Operands& o) { return make_gate(o, dtype, T, C); }));
  out_.push_back(make_case<GateArgs>(
      named("fused_5"), kernels::pointwise.name(),
      [](const Exec& exec, const GateArgs& a) { kernels::pointwise(exec, a.whole()); }, dtype,
      [=](Operands& o) { return make_gate(o, dtype, T, C); }));
}

void Cases::add_dimension_ops() {
  const int64_t T = s_.tokens(), C = s_.width;
  const DType dtype = dtype_;
  add<kernels::ReduceDimsArgs>("sum_last", kernels::reduce_dims, [=](Operands& o) {
    return kernels::ReduceDimsArgs{.x = o.floats(dtype, {T, C}), .y = o.zeros(dtype, {T, 1})};
  });
  add<kernels::ReduceDimsArgs>("sum_first", kernels::reduce_dims, [=](Operands& o) {
    return kernels::ReduceDimsArgs{.x = o.floats(dtype, {T, C}), .y = o.zeros(dtype, {1, C})};
  });
  add<kernels::SoftmaxFwdArgs>("", kernels::softmax_fwd, [=](Operands& o) {
    return kernels::SoftmaxFwdArgs{.x = o.floats(dtype, {T, C}, 3), .y = o.zeros(dtype, {T, C})};
  });
  add<kernels::SoftmaxBwdArgs>("", kernels::softmax_bwd, [=](Operands& o) {
    return kernels::SoftmaxBwdArgs{
        .y = o.floats(dtype, {T, C}), .dy = o.floats(dtype, {T, C}), .dx = o.zeros(dtype, {T, C})};
  });
  // Adds a gather that reads as many rows as the source has.
  const auto rows = [=](Operands& o) {
    View index = o.integers({T}, T);
    index.shape = {1, T, C}, index.strides = {0, 1, 0};
    return index;
  };
  add<kernels::GatherArgs>("rows", kernels::gather, [=](Operands& o) {
    return kernels::GatherArgs{
        .x = o.floats(dtype, {1, T, C}), .index = rows(o), .y = o.zeros(dtype, {1, T, C})};
  });
  add<kernels::ScatterAddArgs>("rows", kernels::scatter_add, [=](Operands& o) {
    return kernels::ScatterAddArgs{
        .x = o.floats(dtype, {1, T, C}), .index = rows(o), .y = o.zeros(DType::kF32, {1, T, C})};
  });
}

}  // namespace shale::kernel_check
