#include "shale/runtime/ops/shape.h"

#include <utility>

#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/tape.h"

namespace shale {
namespace {

Shape infer(const Tensor& x, Shape shape) {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] == -1 && unknown < 0) {
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0 && known > 0) shape[unknown] = x.numel() / known;
  if (shape.numel() != x.numel()) {
    throw ShapeError(cat("reshape: x is ", x.shape(), ", which does not fit ", shape));
  }
  return shape;
}

int dim_index(const char* op, const Tensor& x, int dim) {
  const int index = dim < 0 ? dim + x.ndim() : dim;
  if (index < 0 || index >= x.ndim()) {
    throw ShapeError(cat(op, ": dimension ", dim, " of ", x.shape()));
  }
  return index;
}

Tensor swapped(const Tensor& x, int a, int b) {
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return x.recorded_alias(shape, strides);
}

Tensor window(const Tensor& x, int dim, int64_t begin, int64_t end) {
  Shape shape = x.shape();
  shape[dim] = end - begin;
  return x.recorded_alias(shape, x.strides(), begin * x.strides()[dim]);
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& wanted) {
  check_contiguous("reshape", "x", x);
  const Shape shape = infer(x, wanted);
  Tensor y = x.recorded_alias(shape, contiguous_strides(shape));
  record("reshape", {x}, {&y}, [from = x.shape()](BackwardArgs& args) {
    const Tensor dy = contiguous(args.dy());
    return Grads{dy.alias(from, contiguous_strides(from))};
  });
  return y;
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  const int a = dim_index("transpose", x, dim0), b = dim_index("transpose", x, dim1);
  Tensor y = swapped(x, a, b);
  record("transpose", {x}, {&y},
         [a, b](BackwardArgs& args) { return Grads{contiguous(swapped(args.dy(), a, b))}; });
  return y;
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end) {
  const int index = dim_index("slice", x, dim);
  if (begin < 0 || end < begin || end > x.shape()[index]) {
    throw ShapeError(cat("slice: [", begin, ", ", end, ") of dimension ", dim, " of ", x.shape()));
  }
  Tensor y = window(x, index, begin, end);
  record("slice", {x}, {&y}, [index, begin, end, shape = x.shape()](BackwardArgs& args) {
    Tensor dx = zeros(args.dy().context(), shape, args.dy().dtype());
    kernels::copy(dx.exec(), {.x = args.dy(), .y = window(dx, index, begin, end)});
    return Grads{dx};
  });
  return y;
}

void copy_(Tensor& to, const Tensor& x) {
  check_shape("copy_", "x", x, to.shape());
  check_dtype("copy_", "x", x, to.dtype());
  kernels::copy(to.exec(), {.x = x, .y = to});
  to.bump_version();
}

Tensor contiguous(const Tensor& x) {
  if (x.contiguous()) return x;
  Tensor y = empty_like(x);
  kernels::copy(x.exec(), {.x = x, .y = y});
  record("contiguous", {x}, {&y}, [](BackwardArgs& args) { return Grads{args.dy()}; });
  return y;
}

}  // namespace shale
