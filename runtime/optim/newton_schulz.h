#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::optim {

// One step of a Newton-Schulz iteration: X becomes a X + (b A + c A A) X with A = X X^T, which
// takes each singular value s of X to a s + b s^3 + c s^5.
struct Quintic {
  float a = 0, b = 0, c = 0;
};

// Steps, and by how much they want the singular values to be below 1 at the start.
struct NewtonSchulz {
  std::vector<Quintic> steps;
  float margin = 1;
};
// Muon's own (kellerjordan.github.io/posts/muon): singular values from 0.01 on come to 0.68 to 1.2.
NewtonSchulz muon_polynomials();
// Polar Express (arXiv:2505.16932, algorithm 1): from 0.001 on to 0.85 to 1.1.
NewtonSchulz polar_express();

// A matrix but for a number that multiplies it.
struct ScaledMatrix {
  Tensor value;
  float factor = 1;
};

// Brings the singular values of x / (margin (|x| + eps)), |x| being the Frobenius norm, near to 1
// and leaves its singular vectors. x: [m, n] bf16, or [b, m, n], contiguous, which is used up; the
// result has its shape and dtype, and may be its memory. A step takes 4 k^2 l + 2 k^3 FLOP for the
// smaller side k and the larger one l, of which symmetric products save up to k^2 l + k^3. The bits
// of a matrix depend on the matrix, its shape and the number of x's dimensions alone. Throws
// ShapeError and DTypeError; UnavailableError for batches where the device has no grouped_gemm.
ScaledMatrix orthogonalize(const Tensor& x, const NewtonSchulz& method, float eps);

// Whether matrices [m, n] are better taken in batches: where their products are too small to keep
// a device busy, and to save anything by being symmetric.
bool wants_batches(const Context& context, int64_t m, int64_t n);

}  // namespace shale::optim
