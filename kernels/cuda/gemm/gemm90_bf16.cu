#include "shale/kernels/cuda/gemm/gemm90_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_gemm90_bf16(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  launch_gemm90<bf16>(exec, p, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
