#include <algorithm>
#include <limits>

#include "shale/base/gpu_model.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/gemm/gemm90_fp8.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/fp8.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

// Parts that k is cut into where there are fewer tiles than Hopper has multiprocessors: as many as
// fill them, of 8 stages at least. A function of sizes alone, as a plan is (kernels/gemm_plan.h).
int64_t splits_of(const GemmProblem& p) {
  constexpr int64_t kMultiprocessors = 132, kLeastStages = 8;
  const int64_t tiles = ceil_div(p.m, kFp8Block) * ceil_div(p.n, kFp8Block);
  const int64_t most = ceil_div(p.k, kFp8Block) / kLeastStages;
  return std::max<int64_t>(std::min(kMultiprocessors / tiles, most), 1);
}

// Products of parts go to the workspace in f32, and are then added in order.
void launch_in_parts(const Exec& exec, const Fp8GemmArgs& args, const GemmProblem& p,
                     const GemmWork& work) {
  Matrix parts = {.dtype = DType::kF32, .ld = round_up(p.n, kRun)};
  const int64_t bytes = work.splits * p.m * parts.ld * int64_t{sizeof(float)};
  parts.data = scratch_bytes("fp8_gemm", exec, bytes);
  GemmProblem product;
  product.m = p.m, product.n = p.n, product.k = p.k, product.c = parts;
  GemmWork part_work = work;
  part_work.packs = true;
  launch_fp8_gemm90(exec, args, product, part_work);
  launch_add_parts(exec, p, work, parts, static_cast<int>(work.splits));
}

}  // namespace

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
  GemmWork work = {.tile = GemmTile::kHopper128x128};
  work.packs = packs(p.c, p.m) && packs(p.residual, p.m) && packs(p.bias, 1);
  work.split_k = round_up(ceil_div(p.k, splits_of(p)), kFp8Block);
  work.splits = ceil_div(p.k, work.split_k);
  if (work.splits > 1) return launch_in_parts(exec, args, p, work);
  launch_fp8_gemm90(exec, args, p, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
