#include "shale/kernels/cuda/gemm/grouped_gemm90.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_grouped_gemm90_f16(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  launch_grouped90<f16>(exec, g, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
