#include <algorithm>
#include <limits>

#include "shale/base/gpu_model.h"
#include "shale/kernels/cuda/gemm/gemm90_fp8.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/fp8.h"

namespace shale::kernels::SHALE_BACKEND {

template <>
void run(const Exec& exec, const Fp8GemmArgs& args) {
  if (!is_hopper(exec.device)) {
    throw UnavailableError(cat("fp8_gemm: its kernels are for compute capability 9.0, ",
                               exec.device, " has ", capability_text(exec.device.arch)));
  }
  const GemmArgs product = bf16_product(args, nullptr, nullptr);
  GemmProblem p = gemm_problem(product);
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return gemm(exec, product);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (std::max({p.m, p.n, p.k}) > kMost - kFp8Block) {
    throw ShapeError(cat("fp8_gemm: a is ", args.a.codes, ", b is ", args.b.codes,
                         ", want no size above ", kMost - kFp8Block, " on a GPU"));
  }
  if (p.accumulate) p.residual = p.c;  // the epilogue adds it
  const auto packs = [&](const Matrix& m, int64_t rows) {
    return m.data == nullptr || lines_of(m, rows, p.n).aligned();
  };
  GemmWork work = {.tile = GemmTile::kHopper128x128, .split_k = round_up(p.k, kFp8Block)};
  work.packs = packs(p.c, p.m) && packs(p.residual, p.m) && packs(p.bias, 1);
  launch_fp8_gemm90(exec, args, p, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
