#include "shale/kernels/cuda/conv/conv_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_conv_bf16(const Exec& exec, const WindowProduct& p) {
  launch_windows<bf16, /*kInputGrad=*/false>(exec, p);
}

void launch_conv_input_grad_bf16(const Exec& exec, const WindowProduct& p) {
  launch_windows<bf16, /*kInputGrad=*/true>(exec, p);
}

void launch_conv_weight_grad_bf16(const Exec& exec, const WeightProduct& p) {
  launch_weight_grad<bf16>(exec, p);
}

}  // namespace shale::kernels::SHALE_BACKEND
