#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Selects elements along a dimension: y[..., k, ...] = x[..., index[..., k, ...], ...]. x: f32,
// bf16 or f16; index: i32, with the shape of x except for its size along dim. The result has x's
// dtype and index's shape. An index out of range throws DataError on the CPU and yields NaN
// elsewhere. Gradients are accumulated in f32 in a fixed order, so their bits are the same in every
// run. Keeps index. Throws ShapeError, DTypeError.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// gather() with the same indices for all positions in the other dimensions. ids: [K] i32; the
// result has size K along dim.
Tensor index_select(const Tensor& x, int dim, const Tensor& ids);
// Returns a copy of x with y[..., index[..., k, ...], ...] += source[..., k, ...], in the order of
// k, in f32. source has index's shape and x's dtype. An index out of range throws DataError on the
// CPU and is ignored elsewhere.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
// scatter_add() that overwrites elements instead of adding to them. If several k have the same
// index, the last k counts.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

}  // namespace shale
