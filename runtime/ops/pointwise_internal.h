#pragma once

#include <unordered_map>
#include <vector>

#include "shale/kernels/pointwise_graph.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// ---- Broadcasting ----

// The shape that both are broadcast to. Throws ShapeError that names the op and both,
// the second by b_name.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b,
                      std::string_view b_name = "b");
// x as a tensor of that shape, which it is broadcast to: strides of 0 along what it lacks.
View broadcast_view(const Tensor& x, const Shape& shape);
// A new tensor of that shape: factor * x, broadcast. Records nothing.
Tensor broadcast_scaled(const Tensor& x, const Shape& shape, DType dtype, float factor);
// The reverse: x, added up over what broadcasting to its shape has repeated. Records nothing.
Tensor sum_to(const Tensor& x, const Shape& shape, DType dtype);

// ---- Ops ----

// What an elementwise op is given: a tensor or a number.
struct PointwiseOperand {
  PointwiseOperand(const Tensor& x) : tensor(x) {}
  PointwiseOperand(float x) : value(x) {}
  Tensor tensor;  // undefined: a number
  float value = 0;
};

// One op of operands, rounded to dtype; part of the chain, inside of fused(). Records its backward.
Tensor pointwise(kernels::PointwiseOp op, DType dtype,
                 const std::vector<PointwiseOperand>& operands);

// A chain of ops, and what it is made of.
struct PointwiseChain {
  const char* name = "";
  kernels::PointwiseGraph graph;
  std::vector<Tensor> inputs;  // in the graph's order
  std::vector<int> outputs;    // values of the graph
  Shape shape;                 // of the outputs; inputs broadcast to it
  bool compiled = false;       // as in kernels::PointwiseArgs
  bool saves_outputs = false;  // backward takes them from memory, instead of computing them again
};

// Runs it in one kernel, and records its backward, which is one kernel too, and sums over what was
// broadcast.
std::vector<Tensor> run_chain(PointwiseChain chain);

// ---- Gradients ----

struct PointwiseGradient {
  // Its inputs: those of forward, forward's outputs if they are saved, gradients of the outputs.
  kernels::PointwiseGraph graph;
  std::vector<int> of_input;  // the value that is an input's gradient; -1: none
};
struct GradientWish {
  bool wanted = false;
  DType dtype = DType::kF32;  // of the gradient
};
// The chain rule, from the last value to the first. Each gradient is rounded to its value's dtype,
// as between ops that run one by one.
PointwiseGradient gradient_of(const PointwiseChain& chain, const std::vector<GradientWish>& inputs);

// ---- Chains being recorded ----

// What elementwise ops become inside of fused(): values of a graph, whose tensors have no memory.
class PointwiseTrace {
 public:
  explicit PointwiseTrace(Context& context) : context_(context) {}

  // Throws ShapeError where the result's shape is not that of the others.
  Tensor add(kernels::PointwiseOp op, DType dtype, const Shape& shape,
             const std::vector<PointwiseOperand>& operands);
  // The chain whose outputs are these tensors, all of them results of ops of this trace.
  PointwiseChain chain(const std::vector<Tensor>& outputs) const;

 private:
  int value_of(const PointwiseOperand& operand);

  Context& context_;
  kernels::PointwiseGraph graph_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> results_;  // keeps their addresses from being used again
  std::unordered_map<const TensorImpl*, int> values_;
};

}  // namespace shale
