#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"

namespace shale {
namespace {

// Replaces row i of x [n, rest], f32, by the sum of rows 0 to i, or of rows i to n - 1 if
// from_last. Works in passes p = 0, 1, ...: pass p adds to each row the row at distance 2^p before
// it (after it if from_last). Each row is then the sum of up to 2^(p + 1) rows.
Tensor scanned(Tensor x, bool from_last) {
  const int64_t n = x.size(0), rest = n > 0 ? x.numel() / n : 0;
  Tensor next = empty_like(x);
  for (int64_t distance = 1; distance < n; distance *= 2) {
    const int64_t kept = distance * rest, changed = (n - distance) * rest;
    const int64_t keep_at = from_last ? changed : 0, at = from_last ? 0 : kept;
    const int64_t other = kept - at;
    kernels::copy(x.exec(),
                  {.x = x.view().flat(keep_at, kept), .y = next.view().flat(keep_at, kept)});
    kernels::axpby(x.exec(), {.a = x.view().flat(at, changed),
                              .b = x.view().flat(other, changed),
                              .y = next.view().flat(at, changed)});
    std::swap(x, next);
  }
  return x;
}

// Returns the cumulative sums along a dimension. Autograd does not record them.
Tensor sums(const Tensor& x, int dim, bool from_last) {
  const NoGrad no_grad(x.context());
  Tensor rows = contiguous(transpose(x, dim, 0));
  if (rows.dtype() != DType::kF32) {
    rows = cast(rows, DType::kF32);
  } else if (rows.storage() == x.storage()) {
    rows = scale(rows, 1);  // copies x, because scanned() overwrites its argument
  }
  return cast(contiguous(transpose(scanned(rows, from_last), dim, 0)), x.dtype());
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  check_contiguous("cumsum", "x", x);
  dim = dim_index("cumsum", x, dim);
  Tensor y = sums(x, dim, false);
  record("cumsum", {x}, {&y},
         [dim](BackwardArgs& args) { return Grads{sums(contiguous(args.dy()), dim, true)}; });
  return y;
}

}  // namespace shale
