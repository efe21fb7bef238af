#include "shale/kernels/reduce_dims.h"

#include "shale/kernels/check.h"

namespace shale::kernels {

void check_args(const ReduceDimsArgs& a) {
  constexpr const char* kOp = "reduce_dims";
  check_dtype(kOp, "x", a.x, kComputeDTypes);
  if (a.op == ReduceOp::kArgMax) {
    check_dtype(kOp, "y", a.y, DType::kI32);
  } else {
    check_dtype(kOp, "y", a.y, kComputeDTypes);
  }
  check_contiguous(kOp, "y", a.y);
  bool fits = a.x.ndim() == a.y.ndim();
  int reduced = 0;
  for (int d = 0; fits && d < a.x.ndim(); ++d) {
    fits = a.y.size(d) == a.x.size(d) || a.y.size(d) == 1;
    reduced += a.y.size(d) != a.x.size(d);
  }
  if (!fits) {
    throw ShapeError(
        cat(kOp, ": y is ", a.y, ", expected in each dimension the size of x, ", a.x, ", or 1"));
  }
  if (a.op == ReduceOp::kArgMax && reduced > 1) {
    throw ShapeError(
        cat(kOp, ": y is ", a.y, ", x is ", a.x, ", expected argmax to reduce one dimension"));
  }
  if (a.op != ReduceOp::kSum && a.x.numel() == 0 && a.y.numel() > 0) {
    throw ShapeError(
        cat(kOp, ": x is ", a.x, ", expected at least one element for a maximum or minimum"));
  }
}

void Walk::add(int64_t dim_size, int64_t dim_stride) {
  if (dim_size == 1) return;
  if (count > 0 && stride[size_t(count - 1)] == dim_size * dim_stride) {
    size[size_t(count - 1)] *= dim_size;
    stride[size_t(count - 1)] = dim_stride;
    return;
  }
  size[size_t(count)] = dim_size, stride[size_t(count)] = dim_stride;
  ++count;
}

int64_t Walk::steps() const {
  int64_t product = 1;
  for (int d = 0; d < count; ++d) product *= size[size_t(d)];
  return product;
}

ReducePlan::ReducePlan(const ReduceDimsArgs& args) {
  for (int d = 0; d < args.x.ndim(); ++d) {
    Walk& walk = args.y.size(d) == args.x.size(d) ? kept : reduced;
    walk.add(args.x.size(d), args.x.stride(d));
  }
  for (Walk* walk : {&kept, &reduced}) {
    if (walk->count == 0) walk->size[size_t(walk->count++)] = 1;
  }
}

bool ReducePlan::along_kept() const {
  const auto inner = [](const Walk& walk) { return walk.stride[size_t(walk.count - 1)]; };
  return kept.steps() > 1 && inner(kept) == 1 && (reduced.steps() == 1 || inner(reduced) != 1);
}

}  // namespace shale::kernels
