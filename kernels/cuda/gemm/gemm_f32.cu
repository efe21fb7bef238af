#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_gemm_f32(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  switch (work.tile) {
    case GemmTile::k64x64: return launch_tile<float, GemmTile::k64x64>(exec, p, work);
    case GemmTile::k128x128: return launch_tile<float, GemmTile::k128x128>(exec, p, work);
    default: throw InternalError("gemm: no fp32 kernel has this tile");
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
