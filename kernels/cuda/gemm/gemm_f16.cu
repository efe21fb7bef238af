#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"

namespace shale::kernels::SHALE_BACKEND {

void launch_gemm_f16(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  switch (work.tile) {
    case GemmTile::k64x64: return launch_tile<f16, GemmTile::k64x64>(exec, p, work);
    case GemmTile::k128x64: return launch_tile<f16, GemmTile::k128x64>(exec, p, work);
    case GemmTile::k128x128: return launch_tile<f16, GemmTile::k128x128>(exec, p, work);
    case GemmTile::k128x256: return launch_tile<f16, GemmTile::k128x256>(exec, p, work);
    default: throw InternalError("gemm: only Hopper kernels have this tile");
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
