#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Matrix product of two activations (use linear() for weights). a: [..., M, K]; b: [..., K, N];
// leading dimensions are broadcast. Both have one dtype. Returns [..., M, N] of that dtype;
// accumulates in f32. In an amp::Autocast region it computes in the region's dtype. Throws
// ShapeError, DTypeError. Keeps both. As in NumPy, a [K] is one row, b [K] one column, and the
// result has no dimension for it.
//
// Runs one GEMM per matrix of the batch, or a single GEMM if b is one matrix and a is contiguous.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace shale
