#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Sum (mean) of all elements, a scalar f32: added in f64 by a fixed tree. x: contiguous.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);  // throws ShapeError when x is empty

// Over some dimensions, negative ones counted from the end; `keep` leaves them with size 1. x: any
// strides; the result has its dtype, in a region of amp::Autocast f32. Sums are added in f32, in an
// order that depends on shapes alone. Throws ShapeError for a dimension that is not there, or is
// there twice.
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keep = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keep = false);
// Where several elements are the largest (smallest), they share the gradient. A NaN is passed on.
// Keep x and the result. Throw ShapeError when there are no elements.
Tensor max(const Tensor& x, const std::vector<int>& dims, bool keep = false);
Tensor min(const Tensor& x, const std::vector<int>& dims, bool keep = false);
// Where along the dimension the first of the largest is: i32, without gradient. A NaN is the
// largest.
Tensor argmax(const Tensor& x, int dim, bool keep = false);

// Sum over all dimensions but the last: [..., C] to [C] f32.
Tensor column_sum(const Tensor& x);

}  // namespace shale
