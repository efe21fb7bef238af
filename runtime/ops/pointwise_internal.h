#pragma once

#include <unordered_map>
#include <vector>

#include "shale/kernels/pointwise_graph.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// ---- Broadcasting ----

// Common shape of a and b after broadcasting. Throws ShapeError with the op and both shapes; the
// second is called b_name.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b,
                      std::string_view b_name = "b");
// Returns a view of x broadcast to a shape; new dimensions have stride 0.
View broadcast_view(const Tensor& x, const Shape& shape);
// Returns factor * x, broadcast to a shape, as a new tensor that autograd does not record.
Tensor broadcast_scaled(const Tensor& x, const Shape& shape, DType dtype, float factor);
// Reverse of broadcasting: sums x to a shape. Autograd does not record it.
Tensor sum_to(const Tensor& x, const Shape& shape, DType dtype);

// ---- Ops ----

// Operand of an elementwise op: a tensor, or a number if the tensor is undefined.
using PointwiseOperand = OpArgument;

// Runs one op, rounded to dtype, or adds it to the chain inside fused(). Records its backward.
Tensor pointwise(kernels::PointwiseOp op, DType dtype,
                 const std::vector<PointwiseOperand>& operands);

// A chain of elementwise ops and its inputs.
struct PointwiseChain {
  const char* name = "";
  kernels::PointwiseGraph graph;
  std::vector<Tensor> inputs;  // in the order of the graph's inputs
  std::vector<int> outputs;    // indices of graph values
  Shape shape;                 // shape of the outputs; inputs are broadcast to it
  bool compiled = false;       // see kernels::PointwiseArgs::compiled
  bool saves_outputs = false;  // backward loads outputs instead of recomputing them
};

// Runs the chain in one kernel and records its backward, which is also one kernel, and which sums
// over broadcast dimensions.
std::vector<Tensor> run_chain(PointwiseChain chain);

// ---- Gradients ----

struct PointwiseGradient {
  // Inputs: those of forward, then forward's outputs if they are saved, then the outputs'
  // gradients.
  kernels::PointwiseGraph graph;
  std::vector<int> of_input;  // number of each input's gradient in the graph; -1: none
};
struct GradientWish {
  bool wanted = false;
  DType dtype = DType::kF32;  // dtype of the gradient
};
// Applies the chain rule, from the last value to the first. Each gradient is rounded to its value's
// dtype, as between separate ops.
PointwiseGradient gradient_of(const PointwiseChain& chain, const std::vector<GradientWish>& inputs);

// ---- Chains being recorded ----

// Elementwise ops recorded inside fused(), as values of a graph. Their tensors have no memory.
class PointwiseTrace {
 public:
  explicit PointwiseTrace(Context& context) : context_(context) {}

  // Records an op and returns its result. Throws ShapeError unless all recorded ops have results of
  // one shape.
  Tensor add(kernels::PointwiseOp op, DType dtype, const Shape& shape,
             const std::vector<PointwiseOperand>& operands);
  // The chain with these outputs; all must be results of ops in this trace.
  PointwiseChain chain(const std::vector<Tensor>& outputs) const;

 private:
  int value_of(const PointwiseOperand& operand);

  Context& context_;
  kernels::PointwiseGraph graph_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> results_;  // owns the tensors, whose addresses are keys
  std::unordered_map<const TensorImpl*, int> values_;
};

}  // namespace shale
