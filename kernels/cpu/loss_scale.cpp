#include "shale/kernels/loss_scale.h"

#include "shale/kernels/cpu/run.h"

namespace shale::kernels::cpu {

template <>
void run(const Exec& exec, const LossScaleArgs& args) {
  advance_loss_scale(args, exec.step->loss_scale, exec.step->non_finite);
}

}  // namespace shale::kernels::cpu
