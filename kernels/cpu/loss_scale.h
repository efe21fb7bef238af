#pragma once

#include "shale/kernels/loss_scale.h"

namespace shale::kernels::cpu {

void update_loss_scale(const Exec& exec, const LossScaleArgs& args);

}  // namespace shale::kernels::cpu
