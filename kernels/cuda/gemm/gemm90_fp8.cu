#include "shale/kernels/cuda/gemm/gemm90_fp8_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_fp8_gemm90(const Exec& exec, const Fp8GemmArgs& args, const GemmProblem& p,
                       const GemmWork& work) {
  using Config = Fp8Gemm90Config<5>;
  if (args.b.is_square) return launch_fp8_kernel<Config, true>(exec, args, p, work);
  launch_fp8_kernel<Config, false>(exec, args, p, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
