#include "shale/kernels/random.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
void check_args(const RandomNormalArgs& a) {
  constexpr const char* kOp = "random_normal";
  check_dtype(kOp, "y", a.y, kComputeDTypes);
  check_contiguous(kOp, "y", a.y);
  if (a.first < 0) throw ShapeError(cat(kOp, ": first is ", a.first, ", expected 0 or more"));
  const bool is_box = a.run > 0 && a.stride >= a.run && a.y.numel() % a.run == 0;
  if (a.run != 0 && !is_box) {
    throw ShapeError(cat(kOp, ": run is ", a.run, ", stride is ", a.stride, " and y is ", a.y,
                         ", expected 0 < run <= stride and a multiple of run elements in y"));
  }
}

}  // namespace shale::kernels
