#pragma once

// Slots of this program's kernels and their arguments. The implementations are in soft_shrink.cpp
// for the CPU and in soft_shrink.cu for GPUs, real or emulated.

#include <shale/kernels.h>

namespace example {

// y = x - s where x > s, x + s where x < -s, 0 in between. Contiguous f32 views of the same shape.
struct SoftShrinkFwdArgs {
  shale::View x, y;
  float s = 0;
};
// dx = dy where |x| > s, 0 elsewhere. Contiguous f32 views of the same shape; dx may be dy.
struct SoftShrinkBwdArgs {
  shale::View x, dy, dx;
  float s = 0;
};

// Checks of the arguments on every device. They throw ShapeError and DTypeError.
void check_args(const SoftShrinkFwdArgs& args);
void check_args(const SoftShrinkBwdArgs& args);

inline shale::kernels::Slot<SoftShrinkFwdArgs> soft_shrink_fwd{"soft_shrink_fwd"};
inline shale::kernels::Slot<SoftShrinkBwdArgs> soft_shrink_bwd{"soft_shrink_bwd"};

}  // namespace example
