#include "shale/base/error.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {

int PointwiseTrace::value_of(const PointwiseOperand& operand) {
  if (!operand.tensor.defined()) return graph_.constant(operand.value);
  const auto found = values_.find(operand.tensor.impl_ptr().get());
  if (found != values_.end()) return found->second;
  inputs_.push_back(operand.tensor);
  const int value = graph_.input(operand.tensor.dtype());
  values_[operand.tensor.impl_ptr().get()] = value;
  return value;
}

Tensor PointwiseTrace::add(kernels::PointwiseOp op, DType dtype, const Shape& shape,
                           const std::vector<PointwiseOperand>& operands) {
  if (!results_.empty() && !(results_.front().shape() == shape)) {
    throw ShapeError(cat("fused: ", kernels::name_of(op), " gives ", shape,
                         ", expected the shape of the chain's first result, ",
                         results_.front().shape()));
  }
  std::vector<int> values;
  for (const PointwiseOperand& operand : operands) values.push_back(value_of(operand));
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &context_;
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  results_.push_back(Tensor(std::move(impl)));
  values_[results_.back().impl_ptr().get()] = graph_.apply(op, dtype, values);
  return results_.back();
}

PointwiseChain PointwiseTrace::chain(const std::vector<Tensor>& outputs) const {
  PointwiseChain chain{.name = "fused", .graph = graph_, .inputs = inputs_, .compiled = true};
  for (const Tensor& y : outputs) {
    const auto found = y.defined() ? values_.find(y.impl_ptr().get()) : values_.end();
    if (found == values_.end() || y.impl().storage != nullptr) {
      throw AutogradError(cat("fused: the function returned ", y,
                              ", expected results of elementwise ops made inside of it"));
    }
    chain.outputs.push_back(found->second);
  }
  chain.shape = results_.front().shape();
  return chain;
}

}  // namespace shale
