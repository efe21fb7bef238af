#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Matrix product of two activations (use linear() for weights). a: [..., M, K]; b: [..., K, N];
// leading dimensions are broadcast. Both have one dtype. Returns [..., M, N] of that dtype;
// accumulates in f32. In an amp::Autocast scope it computes in the scope's dtype. Throws
// ShapeError, DTypeError. Keeps a and b. As in NumPy, a [K] counts as one row, b [K] counts as one
// column, and the result has no dimension for it.
//
// Runs one GEMM per matrix of the batch. If b is one matrix and a is contiguous, runs a single
// GEMM.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace shale
