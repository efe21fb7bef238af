#include <algorithm>
#include <limits>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/gemm/gemm90_fp8.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/gemm/tile_shares.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/fp8.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

// Returns the plan of a GEMM with tiles of 128 x 128. The time model is that of 16-bit tiles with
// half of k, because fp8 tensor cores process twice as much of k in the same time.
GemmPlan plan_of(const Exec& exec, GemmProblem p) {
  GemmPlan plan = {.tile = GemmTile::kHopper128x128, .sms = gemm_means(exec).sms};
  plan.cluster = best_cluster(p, plan.tile, plan.sms);
  p.k = ceil_div(p.k, kFp8Block) * kFp8Block / 2;
  p.a.dtype = DType::kBF16;
  plan.shares = best_shares(p, plan.tile, plan.cluster, plan.sms);
  return plan;
}

}  // namespace

template <>
void run(const Exec& exec, const Fp8GemmArgs& args) {
  if (!is_hopper(exec.device)) {
    const std::string why = why_no_fp8(exec.device, args.a.blocks);
    throw UnavailableError(cat("fp8_gemm: ", !why.empty() ? why : "this build has no cuBLASLt"));
  }
  const GemmArgs product = bf16_product(args, nullptr, nullptr);
  GemmProblem p = gemm_problem(product);
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return gemm(exec, product);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (std::max({p.m, p.n, p.k}) > kMost - kFp8Block) {
    throw ShapeError(cat("fp8_gemm: a is ", args.a.codes, ", b is ", args.b.codes,
                         ", expected no size above ", kMost - kFp8Block, " on a GPU"));
  }
  if (p.accumulate) p.residual = p.c;  // the epilogue adds c
  const auto packs = [&](const Matrix& m, int64_t rows) {
    return m.data == nullptr || lines_of(m, rows, p.n).aligned();
  };
  const GemmPlan plan = plan_of(exec, p);
  GemmWork work = {.tile = plan.tile};
  work.packs = packs(p.c, p.m) && packs(p.residual, p.m) && packs(p.bias, 1);
  work.cluster = plan.cluster;
  const SharesRoom room(p, plan);
  if (room.bytes() > 0) {
    work.shares = room.in(exec, static_cast<char*>(scratch_bytes("fp8_gemm", exec, room.bytes())));
  }
  launch_fp8_gemm90(exec, args, p, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
