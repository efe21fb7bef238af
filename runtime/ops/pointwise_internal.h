#pragma once

#include <unordered_map>
#include <vector>

#include "shale/kernels/pointwise_graph.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// ---- Broadcasting ----

// Returns the common shape of a and b after broadcasting. Throws ShapeError with the op and both
// shapes; the message calls the second one b_name.
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

// Runs one op and rounds the result to dtype; inside fused(), adds the op to the chain instead.
// Records its backward.
Tensor pointwise(kernels::PointwiseOp op, DType dtype,
                 const std::vector<PointwiseOperand>& operands);

// A chain of elementwise ops and its inputs.
struct PointwiseChain {
  const char* name = "";
  kernels::PointwiseGraph graph;
  std::vector<Tensor> inputs;  // input tensors, in the order of the graph's inputs
  std::vector<int> outputs;    // indices of the outputs among the graph's values
  Shape shape;                 // shape of the outputs; inputs are broadcast to it
  bool compiled = false;       // see kernels::PointwiseArgs::compiled
  bool saves_outputs = false;  // true: backward loads the outputs instead of recomputing them
};

// Runs the chain in one kernel. Records its backward, which is one kernel, too, and sums over
// broadcast dimensions.
std::vector<Tensor> run_chain(PointwiseChain chain);

// ---- Gradients ----

struct PointwiseGradient {
  // The inputs of this graph are: forward's inputs; then forward's outputs if they are saved; then
  // the gradients of the outputs.
  kernels::PointwiseGraph graph;
  // for each input: number of its gradient in the graph; -1: no gradient
  std::vector<int> of_input;
};
struct GradientWish {
  bool wanted = false;
  DType dtype = DType::kF32;  // dtype of the gradient
};
// Returns the graph that computes the gradients. Applies the chain rule from the last value to the
// first. Each gradient is rounded to its value's dtype, as between separate ops.
PointwiseGradient gradient_of(const PointwiseChain& chain, const std::vector<GradientWish>& inputs);

// ---- Chains being recorded ----

// Elementwise ops inside fused(), recorded as values of a graph. The tensors that they return have
// no memory.
class PointwiseTrace {
 public:
  explicit PointwiseTrace(Context& context) : context_(context) {}

  // Records an op and returns its result. Throws ShapeError if earlier ops have results of another
  // shape.
  Tensor add(kernels::PointwiseOp op, DType dtype, const Shape& shape,
             const std::vector<PointwiseOperand>& operands);
  // Returns the chain that computes these outputs. All must be results of ops in this trace.
  PointwiseChain chain(const std::vector<Tensor>& outputs) const;

 private:
  int value_of(const PointwiseOperand& operand);

  Context& context_;
  kernels::PointwiseGraph graph_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> results_;  // holds the returned tensors, because their addresses are keys
  std::unordered_map<const TensorImpl*, int> values_;
};

}  // namespace shale
