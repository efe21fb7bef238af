#include "shale/kernels/loss_scale.h"

#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

// Runs in one thread. It is a kernel, so that the host need not know whether the step was skipped.
__global__ void update_loss_scale_kernel(StepState* step, LossScaleArgs args) {
  await_previous_grid();
  advance_loss_scale(args, step->loss_scale, step->non_finite);
}

// Runs in one thread, for a few hundred additions.
__global__ void skip_outliers_kernel(StepState* step, float* norms, int64_t window, double sigmas,
                                     int64_t* count) {
  await_previous_grid();
  skip_outlier(norms, window, sigmas, *count, *step);
}

}  // namespace

template <>
void run(const Exec& exec, const LossScaleArgs& args) {
  simt::launch(update_loss_scale_kernel, {.grid = 1, .block = 1}, exec, exec.step, args);
}

template <>
void run(const Exec& exec, const SkipOutlierArgs& a) {
  simt::launch(skip_outliers_kernel, {.grid = 1, .block = 1}, exec, exec.step, a.norms.as<float>(),
               a.norms.numel(), a.sigmas, a.count.as<int64_t>());
}

}  // namespace shale::kernels::SHALE_BACKEND
