#include "shale/kernels/loss_scale.h"

#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

// One thread: a launch, so that the host need not know whether the step was skipped.
__global__ void update_loss_scale_kernel(StepState* step, LossScaleArgs args) {
  await_previous_grid();
  advance_loss_scale(args, step->loss_scale, step->non_finite);
}

}  // namespace

template <>
void run(const Exec& exec, const LossScaleArgs& args) {
  simt::launch(update_loss_scale_kernel, {.grid = 1, .block = 1}, exec, exec.step, args);
}

}  // namespace shale::kernels::SHALE_BACKEND
