#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The product of matrices that are both computed (for weights there is linear()). a: [..., M, K];
// b: [..., K, N]; the dimensions before are broadcast. Returns [..., M, N] of a's dtype, which is
// b's too. Accumulated in f32. In a region of amp::Autocast it is computed in the region's dtype.
// Throws ShapeError, DTypeError. Keeps both.
//
// One product per matrix of the batch, unless b is a single matrix and a is contiguous: then it is
// one in all.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace shale
