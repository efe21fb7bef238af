#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Return the sum or mean of all elements as an f32 scalar. Elements are added in f64 in a fixed
// order. x: contiguous.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);  // throws ShapeError if x is empty

// Reductions over some dimensions. Negative dims count from the end. keep: reduced dimensions stay,
// with size 1. x may have any strides. The result has x's dtype; in an amp::Autocast scope f32.
// Sums are added in f32, in an order that depends only on shapes. Throw ShapeError for a dimension
// that does not exist or is repeated.
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keep = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keep = false);
// If several elements are the maximum (minimum), they share the gradient equally. If an element is
// NaN, so is the result. Keep x and the result. Throw ShapeError if there are no elements.
Tensor max(const Tensor& x, const std::vector<int>& dims, bool keep = false);
Tensor min(const Tensor& x, const std::vector<int>& dims, bool keep = false);
// Returns the index of the first maximum along a dimension, i32, without gradient. NaN counts as
// the maximum.
Tensor argmax(const Tensor& x, int dim, bool keep = false);

// Cumulative sum along a dimension: y[k] = x[0] + ... + x[k]. x: f32, bf16 or f16, contiguous. Sums
// are added in f32 in an order that depends only on the size. Reads and writes memory log2(size)
// times.
Tensor cumsum(const Tensor& x, int dim);

// Sums over all dimensions but the last: [..., C] to [C] f32.
Tensor column_sum(const Tensor& x);

}  // namespace shale
