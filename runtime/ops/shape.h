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

// Copies x into `to`, which has the same shape and dtype and any strides. Not recorded; advances
// the version counter of `to`. While gradients are recorded, throws AutogradError if either has a
// history, because the copy would have no gradient (use NoGrad or detach(); where() and concat()
// are recorded).
void copy_(Tensor& to, const Tensor& x);

// Returns x itself if it is dense and row-major, else a dense row-major copy.
Tensor contiguous(const Tensor& x);

}  // namespace shale
