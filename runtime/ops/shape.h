#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Some results are views: they share x's memory, so that a change through one tensor is visible in
// the other.

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

// Copies x into `to`, which has the same shape and dtype and any strides, such as copy_(slice(y, 0,
// 2, 4), x). Advances the version counter of `to`. Autograd records it: gradients of the copied
// elements flow to x, also through other views of the same memory and through the tensor that they
// view.
//
// If gradients are recorded, throws AutogradError in two cases: `to` is, or is a view of, a leaf
// that requires a gradient; or another tensor uses the memory of `to`, and its history would miss
// the change.
void copy_(const Tensor& to, const Tensor& x);

// Copies x to the device of another context; returns x itself if it is there. Autograd records it:
// a loss in either context has gradients in both. backward() runs only the hooks of the loss's
// context, so sharded modules belong in that context. Waits for both compute streams.
Tensor to(const Tensor& x, Context& context);

// Returns x itself if it is dense and row-major, else a dense row-major copy.
Tensor contiguous(const Tensor& x);

}  // namespace shale
