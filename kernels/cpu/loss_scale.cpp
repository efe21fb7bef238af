#include "shale/kernels/cpu/loss_scale.h"

namespace shale::kernels::cpu {

void update_loss_scale(const Exec& exec, const LossScaleArgs& args) {
  advance_loss_scale(args, exec.step->loss_scale, exec.step->non_finite);
}

}  // namespace shale::kernels::cpu
