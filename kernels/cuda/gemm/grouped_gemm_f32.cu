#include "shale/kernels/cuda/gemm/grouped_gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_grouped_gemm_f32(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  launch_grouped<float>(exec, g, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
