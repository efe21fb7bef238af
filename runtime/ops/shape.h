#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Views: no data moves, and changes through one are seen through the other.

// x contiguous; one size may be -1 and is inferred. Throws ShapeError unless the element counts
// agree.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int dim0, int dim1);
// Elements [begin, end) of a dimension.
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end);

// x cut along a dimension: parts of these sizes, which add up to x's.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int dim);

// Copies of tensors, of one dtype, behind each other along a dimension that they have; their other
// sizes are alike. stack: along a new dimension, shapes are alike.
Tensor concat(const std::vector<Tensor>& tensors, int dim);
Tensor stack(const std::vector<Tensor>& tensors, int dim);

// Copies x into `to`, which has the same shape and dtype and any strides. Records nothing; moves
// the version counter of `to`. Throws AutogradError, while gradients are recorded, if either has a
// history: it would have no gradient (NoGrad, detach(); where() and concat() record).
void copy_(Tensor& to, const Tensor& x);

// x, or a dense row-major copy of it.
Tensor contiguous(const Tensor& x);

}  // namespace shale
