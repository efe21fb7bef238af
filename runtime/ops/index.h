#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Picks along a dimension by number: y[..., k, ...] = x[..., index[..., k, ...], ...]. x: f32, bf16
// or f16; index: i32, of x's shape but for that dimension. Returns like x, of index's shape. An
// index that x does not have is a DataError on the CPU, and gives NaN elsewhere. Gradients are
// added in f32, in order: the same bits on every run. Keeps index. Throws ShapeError, DTypeError.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// The same numbers everywhere: ids [K] i32; the result has K along the dimension.
Tensor index_select(const Tensor& x, int dim, const Tensor& ids);
// x, with y[..., index[..., k, ...], ...] += source[..., k, ...] in order of k, in f32. source: of
// index's shape and x's dtype. An index that x does not have is a DataError on the CPU, and left
// out elsewhere.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

}  // namespace shale
