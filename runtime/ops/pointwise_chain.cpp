#include <algorithm>
#include <memory>

#include "shale/kernels/reduce.h"
#include "shale/kernels/reduce_dims.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

using kernels::PointwiseGraph;
using kernels::PointwiseOp;

// ---- Backward of a chain ----

// Backward of a chain: a program, and the tensors that it reads.
struct ChainBackward {
  const char* name = "";
  PointwiseGradient gradient;
  std::vector<SavedTensor>
      saved;  // first inputs of the program; undefined if the program does not load it
  std::vector<Shape> input_shapes;
  std::vector<DType> input_dtypes;
  Shape shape;
  bool compiled = false;

  Grads run(BackwardArgs& args, size_t outputs) const;

 private:
  Tensor input_of(BackwardArgs& args, int number) const;
  Tensor finish(const Tensor& grad, size_t input) const;
};

// Returns input `number` of the program: a saved tensor, or the gradient of an output. The gradient
// is undefined if none arrived.
Tensor ChainBackward::input_of(BackwardArgs& args, int number) const {
  const auto saved_count = int(saved.size());
  if (number < saved_count) return saved[size_t(number)].get();
  return args.dy(number - saved_count);
}

// Sums a gradient over the dimensions in which its input was broadcast.
Tensor ChainBackward::finish(const Tensor& grad, size_t input) const {
  const bool whole = !grad.defined() || input_shapes[input] == shape;
  return whole ? grad : sum_to(grad, input_shapes[input], input_dtypes[input]);
}

Grads ChainBackward::run(BackwardArgs& args, size_t outputs) const {
  Grads grads(input_shapes.size());
  std::vector<int> values;
  std::vector<size_t> inputs;  // inputs whose gradients the program computes
  Context* context = nullptr;
  for (size_t k = 0; k < outputs; ++k) {
    if (args.dy(int(k)).defined()) context = &args.dy(int(k)).context();
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    const int value = gradient.of_input[i];
    if (value < 0) continue;
    const PointwiseGraph::Value& of = gradient.graph.at(value);
    // the gradient of this input is an incoming gradient, unchanged
    if (of.op == PointwiseOp::kLoad) {
      grads[i] = finish(input_of(args, of.input), i);
    } else {
      values.push_back(value);
      inputs.push_back(i);
    }
  }
  if (values.empty()) return grads;
  const kernels::PointwiseProgram program = gradient.graph.compile(name, values);
  kernels::PointwiseArgs kernel{.program = &program, .compiled = compiled};
  std::vector<Tensor> held;
  for (int k = 0; k < program.inputs; ++k) {
    if (!program.loads(k)) continue;
    Tensor x = input_of(args, k);
    if (!x.defined()) x = zeros(*context, shape, DType::kF32);
    held.push_back(x);
    kernel.inputs[size_t(k)] = broadcast_view(x, shape);
  }
  std::vector<Tensor> results;
  for (size_t k = 0; k < values.size(); ++k) {
    results.push_back(empty(*context, shape, gradient.graph.at(values[k]).dtype));
    kernel.outputs[k] = results.back();
  }
  kernels::pointwise(context->exec(), kernel);
  for (size_t k = 0; k < values.size(); ++k) grads[inputs[k]] = finish(results[k], inputs[k]);
  return grads;
}

// Returns the backward of a chain, with the saved tensors that it loads.
ChainBackward prepare_backward(const PointwiseChain& chain, const std::vector<Tensor>& results) {
  ChainBackward backward{.name = chain.name, .shape = chain.shape, .compiled = chain.compiled};
  std::vector<GradientWish> wishes;
  for (const Tensor& x : chain.inputs) {
    const DType dtype = x.shape() == chain.shape ? x.dtype() : DType::kF32;
    wishes.push_back({.wanted = x.requires_grad(), .dtype = dtype});
    backward.input_shapes.push_back(x.shape());
    backward.input_dtypes.push_back(x.dtype());
  }
  backward.gradient = gradient_of(chain, wishes);
  std::vector<int> values;
  for (const int value : backward.gradient.of_input) {
    if (value >= 0) values.push_back(value);
  }
  const kernels::PointwiseProgram program = backward.gradient.graph.compile(chain.name, values);
  const size_t saved = chain.inputs.size() + (chain.saves_outputs ? results.size() : 0);
  for (size_t k = 0; k < saved; ++k) {
    const Tensor& x = k < chain.inputs.size() ? chain.inputs[k] : results[k - chain.inputs.size()];
    backward.saved.push_back(program.loads(int(k)) ? SavedTensor(chain.name, x) : SavedTensor());
  }
  return backward;
}

}  // namespace

// ---- Broadcasting ----

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b, std::string_view b_name) {
  Shape shape = a.ndim() >= b.ndim() ? a : b;
  for (int d = 1; d <= shape.ndim(); ++d) {
    const int64_t of_a = d <= a.ndim() ? a.at(-d) : 1, of_b = d <= b.ndim() ? b.at(-d) : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      throw ShapeError(cat(op, ": ", b_name, " is ", b, ", a is ", a,
                           ", expected in each dimension equal sizes, or one size of 1"));
    }
    shape[shape.ndim() - d] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

View broadcast_view(const Tensor& x, const Shape& shape) {
  View view = x.view();
  const int missing = shape.ndim() - view.ndim();
  Shape strides = shape;
  for (int d = 0; d < shape.ndim(); ++d) {
    const int own = d - missing;
    const bool repeated = own < 0 || (view.shape[own] == 1 && shape[d] != 1);
    strides[d] = repeated ? 0 : view.strides[own];
  }
  view.shape = shape, view.strides = strides;
  return view;
}

Tensor broadcast_scaled(const Tensor& x, const Shape& shape, DType dtype, float factor) {
  PointwiseGraph graph;
  const int from = graph.input(x.dtype());
  const int value = factor == 1
                        ? graph.apply(PointwiseOp::kConvert, dtype, {from})
                        : graph.apply(PointwiseOp::kMul, dtype, {from, graph.constant(factor)});
  const kernels::PointwiseProgram program = graph.compile("broadcast", {value});
  Tensor y = empty(x.context(), shape, dtype);
  kernels::pointwise(
      x.exec(), {.program = &program, .inputs = {broadcast_view(x, shape)}, .outputs = {y.view()}});
  return y;
}

Tensor sum_to(const Tensor& x, const Shape& shape, DType dtype) {
  Tensor y = empty(x.context(), shape, dtype);
  // Sums [..., C] to [C], as for the gradient of a bias: column_sum adds blocks of rows in
  // parallel.
  const bool is_columns = shape.ndim() == 1 && x.ndim() > 1 && shape[0] == x.size(-1) &&
                          x.contiguous() && dtype != DType::kF16;
  if (is_columns) {
    kernels::column_sum(x.exec(), {.x = as_matrix(x), .y = y});
    return y;
  }
  if (y.numel() == 1 && x.contiguous() && x.dtype() == DType::kF32 && dtype == DType::kF32) {
    kernels::sum(x.exec(), {.x = x, .y = y});
    return y;
  }
  Shape sizes = x.shape();
  for (int d = 0; d < sizes.ndim(); ++d) {
    const int own = d - (sizes.ndim() - shape.ndim());
    sizes[d] = own < 0 ? 1 : shape[own];
  }
  View to = y.view();
  to.shape = sizes, to.strides = contiguous_strides(sizes);
  kernels::reduce_dims(x.exec(), {.x = x, .y = to});
  return y;
}

// ---- Ops ----

std::vector<Tensor> run_chain(PointwiseChain chain) {
  const kernels::PointwiseProgram program = chain.graph.compile(chain.name, chain.outputs);
  Context& context = chain.inputs.front().context();
  check_same_device(chain.name, chain.inputs.front(), chain.inputs);
  kernels::PointwiseArgs args{.program = &program, .compiled = chain.compiled};
  for (size_t i = 0; i < chain.inputs.size(); ++i) {
    args.inputs[i] = broadcast_view(chain.inputs[i], chain.shape);
  }
  std::vector<Tensor> results;
  for (size_t k = 0; k < chain.outputs.size(); ++k) {
    results.push_back(empty(context, chain.shape, chain.graph.at(chain.outputs[k]).dtype));
    args.outputs[k] = results.back();
  }
  kernels::pointwise(context.exec(), args);
  const auto any = [](const std::vector<Tensor>& tensors, auto property) {
    return std::any_of(tensors.begin(), tensors.end(), property);
  };
  const bool records = context.autograd().enabled &&
                       any(chain.inputs, [](const Tensor& x) { return x.requires_grad(); }) &&
                       any(results, [](const Tensor& y) { return is_float(y.dtype()); });
  if (!records) return results;
  std::vector<Tensor*> outputs;
  for (Tensor& y : results) outputs.push_back(&y);
  auto backward = std::make_shared<ChainBackward>(prepare_backward(chain, results));
  record(chain.name, chain.inputs, outputs,
         [backward, count = results.size()](BackwardArgs& grads) {
           return backward->run(grads, count);
         });
  return results;
}

Tensor pointwise(PointwiseOp op, DType dtype, const std::vector<PointwiseOperand>& operands) {
  const char* name = kernels::name_of(op);
  Shape shape;
  Context* context = nullptr;
  for (const PointwiseOperand& operand : operands) {
    if (!operand.tensor.defined()) continue;
    const Shape& next = operand.tensor.shape();
    if (context == nullptr || next == shape) {
      shape = next;
    } else {
      shape = broadcast_shape(name, shape, next, argument_text("b", operand.tensor));
    }
    context = &operand.tensor.context();
  }
  if (PointwiseTrace* trace = context->autograd().trace) {
    return trace->add(op, dtype, shape, operands);
  }
  PointwiseChain chain{.name = name, .shape = shape, .saves_outputs = true};
  std::vector<int> values;
  for (const PointwiseOperand& operand : operands) {
    if (operand.tensor.defined()) {
      values.push_back(chain.graph.input(operand.tensor.dtype()));
      chain.inputs.push_back(operand.tensor);
    } else {
      values.push_back(chain.graph.constant(operand.value));
    }
  }
  chain.outputs = {chain.graph.apply(op, dtype, values)};
  const Tensor y = run_chain(std::move(chain))[0];
  if (OpRecorder* to = recorder_of(y)) to->add(name, operands, {y});
  return y;
}

}  // namespace shale
