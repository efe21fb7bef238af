#include "shale/kernels/index.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Checks `index`, which holds positions along dimension 1 of `indexed`. `other` must have the shape
// of `index`.
void check_index(const char* op, const View& indexed, const View& other, const View& index,
                 const char* other_name) {
  check_dtype(op, "index", index, DType::kI32);
  check_contiguous(op, "x", indexed);
  check_contiguous(op, "y", other);
  if (indexed.ndim() != 3) {
    throw ShapeError(cat(op, ": the indexed tensor is ", indexed, ", expected [outer, N, inner]"));
  }
  const Shape want = {indexed.size(0), index.size(1), indexed.size(2)};
  check_shape(op, "index", index, want);
  check_shape(op, other_name, other, want);
}

}  // namespace

void check_args(const GatherArgs& a) {
  check_dtype("gather", "x", a.x, kComputeDTypes);
  check_dtype("gather", "y", a.y, a.x.dtype);
  check_index("gather", a.x, a.y, a.index, "y");
}

void check_args(const ScatterAddArgs& a) {
  check_dtype("scatter_add", "x", a.x, kComputeDTypes);
  check_dtype("scatter_add", "y", a.y, DType::kF32);
  check_index("scatter_add", a.y, a.x, a.index, "x");
}

}  // namespace shale::kernels
