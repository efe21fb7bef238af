#include "shale/kernels/reduce_dims.h"

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

using kernels::ReduceOp;

// Result shapes of a reduction. kept: with size 1 in the reduced dimensions. dropped: without the
// reduced dimensions.
struct Reduced {
  Shape kept, dropped;
  int64_t count = 1;      // number of elements that are reduced to one
  std::vector<int> dims;  // the reduced dimensions, counted from 0

  const Shape& shape(bool keep) const { return keep ? kept : dropped; }
};

Reduced reduced_shape(const char* op, const Tensor& x, const std::vector<int>& dims) {
  check_defined(op, "x", x);
  std::vector<bool> is_reduced(size_t(x.ndim()), false);
  for (const int dim : dims) {
    const int index = dim_index(op, x, dim);
    if (is_reduced[size_t(index)]) {
      throw ShapeError(cat(op, ": dimension ", dim, " of ", x.shape(), " is named twice"));
    }
    is_reduced[size_t(index)] = true;
  }
  Reduced result;
  for (int d = 0; d < x.ndim(); ++d) {
    result.kept.push_back(is_reduced[size_t(d)] ? 1 : x.size(d));
    if (is_reduced[size_t(d)]) {
      result.dims.push_back(d);
      result.count *= x.size(d);
    } else {
      result.dropped.push_back(x.size(d));
    }
  }
  return result;
}

Tensor run_reduce(const Tensor& x, const Reduced& to, bool keep, ReduceOp op, float scale = 1) {
  const bool is_index = op == ReduceOp::kArgMax;
  const DType dtype = is_index ? DType::kI32 : amp::wants_f32({x}) ? DType::kF32 : x.dtype();
  Tensor y = empty(x.context(), to.shape(keep), dtype);
  View view = y.view();
  view.shape = to.kept, view.strides = contiguous_strides(to.kept);
  kernels::reduce_dims(x.exec(), {.x = x, .y = view, .op = op, .scale = scale});
  return y;
}

void report(const char* op, const Tensor& x, const Reduced& reduced, const Tensor& y) {
  if (OpRecorder* to = recorder_of(y)) to->add(op, {x}, {y}, {{"dims", reduced.dims}});
}

// Returns a view of dy in which the reduced dimensions have size 1.
Tensor with_ones(const Tensor& dy, const Reduced& to) {
  return dy.alias(to.kept, contiguous_strides(to.kept));
}

Tensor scaled_sum(const char* op, const Tensor& x, const Reduced& to, bool keep, float scale) {
  Tensor y = run_reduce(x, to, keep, ReduceOp::kSum, scale);
  report(op, x, to, y);
  record(op, {x}, {&y}, [to, shape = x.shape(), dtype = x.dtype(), scale](BackwardArgs& args) {
    return Grads{broadcast_scaled(with_ones(args.dy(), to), shape, dtype, scale)};
  });
  return y;
}

// Returns the maximum or minimum. Equal extremes share the gradient.
Tensor extreme(const char* op, const Tensor& x, const std::vector<int>& dims, bool keep,
               ReduceOp reduce) {
  const Reduced to = reduced_shape(op, x, dims);
  if (to.count == 0) throw ShapeError(cat(op, ": x is ", x.shape(), ", expected sizes above 0"));
  Tensor y = run_reduce(x, to, keep, reduce);
  report(op, x, to, y);
  if (!needs_grad(x.context(), {x})) return y;
  record(op, {x}, {&y}, [to, x = SavedTensor(op, x), y = SavedTensor(op, y)](BackwardArgs& args) {
    const Tensor input = x.get();
    const Tensor mask = cast(equal(input, with_ones(y.get(), to)), DType::kF32);
    const Tensor count = run_reduce(mask, to, true, ReduceOp::kSum);
    const Tensor each = div(cast(with_ones(args.dy(), to), DType::kF32), count);
    return Grads{cast(mul(mask, each), input.dtype())};
  });
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keep) {
  return scaled_sum("sum", x, reduced_shape("sum", x, dims), keep, 1);
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keep) {
  const Reduced to = reduced_shape("mean", x, dims);
  if (to.count == 0) throw ShapeError(cat("mean: x is ", x.shape(), ", expected sizes above 0"));
  return scaled_sum("mean", x, to, keep, static_cast<float>(1.0 / double(to.count)));
}

Tensor max(const Tensor& x, const std::vector<int>& dims, bool keep) {
  return extreme("max", x, dims, keep, ReduceOp::kMax);
}

Tensor min(const Tensor& x, const std::vector<int>& dims, bool keep) {
  return extreme("min", x, dims, keep, ReduceOp::kMin);
}

Tensor argmax(const Tensor& x, int dim, bool keep) {
  const Reduced to = reduced_shape("argmax", x, {dim});
  if (to.count == 0) throw ShapeError(cat("argmax: x is ", x.shape(), ", expected sizes above 0"));
  const Tensor y = run_reduce(x, to, keep, ReduceOp::kArgMax);
  report("argmax", x, to, y);
  return y;
}

}  // namespace shale
