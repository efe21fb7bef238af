#include "soft_shrink.h"

#include <shale/autograd.h>

#include <cmath>

#include "soft_shrink_slots.h"

namespace example {
namespace {

using shale::Exec;
using shale::Tensor;
using shale::View;

// ---- CPU kernels

void cpu_fwd(const Exec&, const SoftShrinkFwdArgs& a) {
  const float* x = a.x.as<float>();
  float* y = a.y.as<float>();
  for (int64_t i = 0; i < a.x.numel(); ++i) {
    y[i] = x[i] > a.s ? x[i] - a.s : x[i] < -a.s ? x[i] + a.s : 0.0f;
  }
}

void cpu_bwd(const Exec&, const SoftShrinkBwdArgs& a) {
  const float *x = a.x.as<float>(), *dy = a.dy.as<float>();
  float* dx = a.dx.as<float>();
  for (int64_t i = 0; i < a.x.numel(); ++i) dx[i] = std::abs(x[i]) > a.s ? dy[i] : 0.0f;
}

// Fills the slots before main(). The linker may drop this object from a static library if nothing
// refers to it; there, let the program call a function instead.
const bool registered = [] {
  soft_shrink_fwd.set(shale::DeviceType::kCpu, cpu_fwd);
  soft_shrink_bwd.set(shale::DeviceType::kCpu, cpu_bwd);
  return true;
}();

}  // namespace

void check_args(const SoftShrinkFwdArgs& a) {
  using shale::kernels::check_dense;
  check_dense("soft_shrink_fwd", "x", a.x, a.x.shape, shale::DType::kF32);
  check_dense("soft_shrink_fwd", "y", a.y, a.x.shape, shale::DType::kF32);
}

void check_args(const SoftShrinkBwdArgs& a) {
  using shale::kernels::check_dense;
  check_dense("soft_shrink_bwd", "x", a.x, a.x.shape, shale::DType::kF32);
  check_dense("soft_shrink_bwd", "dy", a.dy, a.x.shape, shale::DType::kF32);
  check_dense("soft_shrink_bwd", "dx", a.dx, a.x.shape, shale::DType::kF32);
}

// ---- The op

Tensor soft_shrink(const Tensor& x, float s) {
  Tensor y = empty_like(x);
  soft_shrink_fwd(x.exec(), {.x = x, .y = y, .s = s});
  if (!needs_grad(x.context(), {x})) return y;
  shale::record("soft_shrink", {x}, {&y},
                [x = shale::SavedTensor("soft_shrink", x), s](shale::BackwardArgs& args) {
                  const Tensor& dy = args.dy();
                  Tensor dx = empty_like(dy);
                  soft_shrink_bwd(dy.exec(), {.x = x.get(), .dy = dy, .dx = dx, .s = s});
                  return shale::Grads{dx};
                });
  return y;
}

}  // namespace example
