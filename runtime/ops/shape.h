#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Results that are views share x's memory: changes through one of the two tensors are visible in
// the other tensor.

// x must be contiguous; one size may be -1 and is inferred. Throws ShapeError unless the number of
// elements agrees.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int dim0, int dim1);
// Returns elements [begin, end) of a dimension.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end);

// Splits x along a dimension into parts of these sizes, whose sum must be x's size.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int dim);

// concat joins tensors of one dtype along an existing dimension; their other sizes must be equal.
// stack joins them along a new dimension; their shapes must be equal. Both copy.
Tensor concat(const std::vector<Tensor>& tensors, int dim);
Tensor stack(const std::vector<Tensor>& tensors, int dim);

// Copies x into `to`, which has the same shape and dtype and any strides, such as
// copy_(slice(y, 0, 2, 4), x). Advances the version counter of `to`. Recorded: gradients of the
// copied elements, also through the tensor of which `to` is a view and its other views, flow to x.
// Throws AutogradError, if gradients are recorded, for a `to` that is a leaf that requires one or a
// view of such a leaf, or whose memory is used by a tensor whose history would miss the change.
void copy_(const Tensor& to, const Tensor& x);

// Copies x to the device of another context, or returns x if it is there. Recorded: a loss in
// either context has gradients in both. backward() runs the hooks of the loss's context only, so
// sharded modules belong there. Waits for both compute streams.
Tensor to(const Tensor& x, Context& context);

// Returns x itself if it is dense and row-major, else a dense row-major copy.
Tensor contiguous(const Tensor& x);

}  // namespace shale
