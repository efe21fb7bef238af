#include "shale/kernels/loss_scale.h"

#include "shale/kernels/cpu/run.h"

namespace shale::kernels::cpu {

template <>
void run(const Exec& exec, const LossScaleArgs& args) {
  advance_loss_scale(args, exec.step->loss_scale, exec.step->non_finite);
}

template <>
void run(const Exec& exec, const SkipOutlierArgs& a) {
  skip_outlier(a.norms.as<float>(), a.norms.numel(), a.sigmas, *a.count.as<int64_t>(), *exec.step);
}

}  // namespace shale::kernels::cpu
