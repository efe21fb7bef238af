#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::optim {

// One step of a Newton-Schulz iteration: X becomes a X + (b A + c A A) X with A = X X^T, which maps
// each singular value s of X to a s + b s^3 + c s^5.
struct Quintic {
  float a = 0, b = 0, c = 0;
};

// Steps of a Newton-Schulz iteration. Singular values must be at most 1 / margin at the beginning.
struct NewtonSchulz {
  std::vector<Quintic> steps;
  float margin = 1;
};
// Muon's polynomials (kellerjordan.github.io/posts/muon). They map singular values of 0.01 and more
// to 0.68 ... 1.2.
NewtonSchulz muon_polynomials();
// Polar Express (arXiv:2505.16932, algorithm 1). Its polynomials map singular values of 0.001 and
// more to 0.85 ... 1.1.
NewtonSchulz polar_express();

// The matrix factor * value.
struct ScaledMatrix {
  Tensor value;
  float factor = 1;
};

// Returns a matrix with the singular vectors of x and with singular values close to 1. Iterates
// from x / (margin (|x| + eps)), where |x| is the Frobenius norm. x: [m, n] bf16, or a batch [b, m,
// n], contiguous; its memory is overwritten. The result has x's shape and dtype, and may share its
// memory. The bits of a matrix's result depend only on the matrix, its shape and the number of x's
// dimensions.
//
// A step needs 4 k^2 l + 2 k^3 FLOP, where k is the smaller side and l the larger; symmetric
// matmuls save up to k^2 l + k^3. Throws ShapeError and DTypeError; UnavailableError for batches on
// a device without grouped_gemm.
ScaledMatrix orthogonalize(const Tensor& x, const NewtonSchulz& method, float eps);

// True if matrices [m, n] should be processed as a batch. Their GEMMs are then too small to fill a
// device or to gain from symmetry.
bool wants_batches(const Context& context, int64_t m, int64_t n);

}  // namespace shale::optim
