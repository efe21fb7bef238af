#include "shale/kernels/rope.h"

#include "shale/kernels/check.h"

namespace shale::kernels {

void check_args(const RopeArgs& a) {
  constexpr const char* kOp = "rope";
  check_dtype(kOp, "x", a.x, kComputeDTypes);
  const bool fits = a.x.ndim() == 4 && a.x.size(3) >= 2 && a.x.size(3) % 2 == 0 &&
                    a.x.size(3) <= kMaxRopeHeadSize && a.x.strides[3] == 1;
  if (!fits) {
    throw ShapeError(cat(kOp, ": x is ", a.x, ", expected [B, T, H, D] with D even, 2 to ",
                         kMaxRopeHeadSize, ", and contiguous elements"));
  }
  check_shape(kOp, "y", a.y, a.x.shape);
  check_dtype(kOp, "y", a.y, a.x.dtype);
  if (a.y.strides[3] != 1) {
    throw ShapeError(cat(kOp, ": y is ", a.y, ", expected stride 1 in the last dimension"));
  }
  if (a.turns == nullptr) throw InternalError(cat(kOp, ": the table of rotations (turns) is null"));
  if (a.positions.defined()) {
    check_dense(kOp, "positions", a.positions, {a.x.size(0), a.x.size(1)}, DType::kI32);
  }
  if (a.first_position < 0) {
    throw ShapeError(cat(kOp, ": first_position is ", a.first_position, ", expected at least 0"));
  }
}

}  // namespace shale::kernels
