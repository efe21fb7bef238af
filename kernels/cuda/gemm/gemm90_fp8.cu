#include "shale/kernels/cuda/gemm/gemm90_fp8_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_fp8_gemm90(const Exec& exec, const Fp8GemmArgs& args, const GemmProblem& p,
                       const GemmWork& work) {
  using Config = Fp8Gemm90Config<5>;
  const bool lines = args.b.blocks == Fp8Blocks::kLines;
  if (lines) return launch_fp8_kernel<e4m3, Config, true>(exec, args, p, work);
  if (args.a.format == Fp8Format::kE5M2) {
    return launch_fp8_kernel<e5m2, Config, false>(exec, args, p, work);
  }
  launch_fp8_kernel<e4m3, Config, false>(exec, args, p, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
