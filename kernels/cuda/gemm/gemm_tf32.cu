#include "shale/kernels/cuda/gemm/grouped_gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_gemm_tf32(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  constexpr auto kSmall = GemmTile::k64x64, kLarge = GemmTile::k128x128;
  switch (work.tile) {
    case kSmall: return launch_tile<float, kSmall, Tf32Config<kSmall>>(exec, p, work);
    case kLarge: return launch_tile<float, kLarge, Tf32Config<kLarge>>(exec, p, work);
    default: throw InternalError("gemm: no tf32 kernel has this tile");
  }
}

void launch_grouped_gemm_tf32(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  launch_grouped<float, Tf32Config<GemmTile::k64x64>, Tf32Config<GemmTile::k128x128>>(exec, g,
                                                                                      work);
}

}  // namespace shale::kernels::SHALE_BACKEND
