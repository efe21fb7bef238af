#include "shale/kernels/cuda/conv/conv_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_conv_f32(const Exec& exec, const WindowProduct& p) {
  launch_windows<float, /*kInputGrad=*/false>(exec, p);
}

void launch_conv_input_grad_f32(const Exec& exec, const WindowProduct& p) {
  launch_windows<float, /*kInputGrad=*/true>(exec, p);
}

void launch_conv_weight_grad_f32(const Exec& exec, const WeightProduct& p) {
  launch_weight_grad<float>(exec, p);
}

}  // namespace shale::kernels::SHALE_BACKEND
