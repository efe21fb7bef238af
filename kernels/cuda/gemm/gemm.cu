#include "shale/kernels/cuda/gemm/gemm.h"

#include <limits>
#include <utility>

#include "shale/base/gpu_model.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/gemm/gemm90.cuh"
#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/gemm/tile_shares.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/gemm.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

// ---- Kernels that run after the main kernel: split-K, bias gradients ----

constexpr int kReduceTile = 64, kReduceThreads = 128;

// Adds the partial results of split-K in order, and then applies the GEMM's epilogue. parts:
// [splits * m, ld].
template <typename TIn, typename TOut>
__global__ void __launch_bounds__(kReduceThreads)
    add_parts_kernel(const GemmProblem p, const GemmWork work, const float* parts, int64_t ld,
                     int64_t splits) {
  await_previous_grid();
  struct Scratch {
    float sums[kReduceThreads * kRun];
  };
  const int64_t row = int64_t{blockIdx.y} * kReduceTile, col = int64_t{blockIdx.x} * kReduceTile;
  const auto sum_of_parts = [&](int r, int c) {
    const int64_t left = p.n - col - c;
    const bool whole = left >= kRun;
    const int count = whole ? kRun : static_cast<int>(left);
    const float* part = parts + (row + r) * ld + col + c;
    Run sum = load_run(part, count, whole);
    for (int64_t i = 1; i < splits; ++i) {
      part += p.m * ld;
      const Run next = load_run(part, count, whole);
#pragma unroll
      for (int e = 0; e < kRun; ++e) sum.at[e] += next.at[e];
    }
    return sum;
  };
  const EpilogueTile tile = {.row = row,
                             .row_end = p.m,
                             .col = col,
                             .c_row = row,
                             .packs = work.packs,
                             .column_sums = work.column_sums == nullptr
                                                ? nullptr
                                                : work.column_sums + int64_t{blockIdx.y} * p.n};
  epilogue_tile<TIn, TOut, kReduceTile, kReduceTile, kReduceThreads>(
      p, tile, shared<Scratch>().sums, sum_of_parts);
}

constexpr int kSumColumns = 32, kSumSlices = 8;

// Computes bias_grad from column_sums [rows, n], the column sums of the tile rows. First each of 8
// slices adds every 8th row in order, then the slices are added in order. A block has 32 columns.
__global__ void __launch_bounds__(kSumColumns* kSumSlices)
    bias_grad_kernel(const float* column_sums, int64_t rows, int64_t n, ColumnSumTarget bias_grad) {
  await_previous_grid();
  struct Slices {
    float at[kSumSlices][kSumColumns];
  };
  Slices& slices = shared<Slices>();
  const int column = threadIdx.x % kSumColumns, slice = threadIdx.x / kSumColumns;
  const int64_t j = int64_t{blockIdx.x} * kSumColumns + column;
  float sum = 0;
  if (j < n) {
    for (int64_t i = slice; i < rows; i += kSumSlices) sum += column_sums[i * n + j];
  }
  slices.at[slice][column] = sum;
  __syncthreads();
  if (slice > 0 || j >= n) return;
  for (int i = 1; i < kSumSlices; ++i) sum += slices.at[i][column];
  store_column_sum(bias_grad, j, sum);
}

// ---- Host side ----

void launch_product(const Exec& exec, const GemmProblem& p, const GemmWork& work) {
  if (is_hopper(work.tile)) {
    return p.a.dtype == DType::kBF16 ? launch_gemm90_bf16(exec, p, work)
                                     : launch_gemm90_f16(exec, p, work);
  }
  switch (p.a.dtype) {
    case DType::kBF16: return launch_gemm_bf16(exec, p, work);
    case DType::kF16: return launch_gemm_f16(exec, p, work);
    default: return p.tf32 ? launch_gemm_tf32(exec, p, work) : launch_gemm_f32(exec, p, work);
  }
}

void launch_bias_grad(const Exec& exec, const GemmProblem& p, const float* column_sums,
                      int64_t rows) {
  simt::launch(bias_grad_kernel,
               {.grid = ceil_div(p.n, kSumColumns), .block = kSumColumns * kSumSlices}, exec,
               column_sums, rows, p.n,
               ColumnSumTarget{.out = p.bias_grad.data,
                               .dtype = p.bias_grad.dtype,
                               .accumulate = p.accumulate_bias_grad});
}

// Computes c and the other outputs of a GEMM from the partial results of all parts of k, [splits *
// m, n] in f32, added in order.
void launch_add_parts(const Exec& exec, const GemmProblem& p, const GemmWork& work,
                      const Matrix& parts) {
  dispatch_float(p.a.dtype, [&]<typename TIn>() {
    const auto launch = [&](auto kernel) {
      simt::launch(kernel,
                   {.grid = {ceil_div(p.n, kReduceTile), ceil_div(p.m, kReduceTile)},
                    .block = kReduceThreads},
                   exec, p, work, static_cast<const float*>(parts.data), parts.ld, work.splits);
    };
    if (p.c.dtype == DType::kF32) return launch(add_parts_kernel<TIn, float>);
    launch(add_parts_kernel<TIn, TIn>);
  });
}

// Returns the size of a part of k, rounded up to whole stages, so that parts start at aligned
// addresses.
int64_t k_of_part(int64_t k, int splits) {
  constexpr int64_t kStage = 64;  // a multiple of every tile's depth
  return std::max(round_up(ceil_div(k, splits), kStage), kStage);
}

void check_shares(const GemmProblem& p, const GemmPlan& plan) {
  if (plan.shares == 0) return;
  const int64_t tiles = tiles_of(p, plan.tile, plan.cluster, plan.sms).shared;
  if (plan.shares > 0 && can_cut(p, tiles, plan.shares)) return;
  throw UnavailableError(cat("gemm: the plan splits k over ", plan.shares, " shares for ", tiles,
                             " tiles of ", name_of(plan.tile), ", expected 0 to ",
                             tiles * ceil_div(p.k, kStageOfShares), " shares"));
}

void check_plan(const Exec& exec, const GemmProblem& p, const GemmPlan& plan) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (std::max({p.m, p.n, p.k}) > kMost) {
    throw ShapeError(cat("gemm: [", p.m, ",", p.k, "] times [", p.k, ",", p.n,
                         "], expected no size above ", kMost, " on a GPU"));
  }
  if (!has_kernel(p, plan.tile, plan.splits)) {
    throw UnavailableError(cat("gemm: no kernel for ", dtype_name(p.a.dtype), " with tiles of ",
                               rows_of(plan.tile), "x", cols_of(plan.tile), " and ", plan.splits,
                               " splits"));
  }
  const int blocks = cluster_blocks(plan.tile);
  if (plan.cluster != 1 && plan.cluster != blocks) {
    throw UnavailableError(cat("gemm: ", name_of(plan.tile), " in clusters of ", plan.cluster,
                               " blocks, expected 1", blocks > 1 ? cat(" or ", blocks) : ""));
  }
  check_shares(p, plan);
  if (is_hopper(plan.tile) && !is_hopper(exec.device)) {
    throw UnavailableError(cat("gemm: ", name_of(plan.tile), " is for compute capability 9.0, ",
                               exec.device, " has ", capability_text(exec.device.arch)));
  }
  if (!can_run(plan.tile, gemm_means(exec.device))) {
    throw UnavailableError(cat("gemm: ", name_of(plan.tile), " takes more shared memory than the ",
                               gpu_model(exec.device.arch).block_shared_bytes >> 10,
                               " KiB that a block has on ", exec.device));
  }
}

// Sizes in bytes of the parts of a GEMM's workspace, in this order.
struct WorkspaceParts {
  WorkspaceParts(const GemmProblem& p, const GemmPlan& plan)
      : split_k(k_of_part(p.k, plan.splits)),
        splits(std::max<int64_t>(ceil_div(p.k, split_k), 1)),
        part_ld(round_up(p.n, kRun)),
        shares(p, plan) {
    const Lines lines_a = lines_of(p.a, p.m, p.k), lines_b = lines_of(p.b, p.k, p.n);
    const Lines lines_up = lines_of(p.b_up, p.k, p.n);
    const bool whole = splits == 1;
    const int64_t slab = !whole                 ? kReduceTile
                         : is_hopper(plan.tile) ? kGemm90SlabRows
                                                : rows_of(plan.tile);
    sum_rows = p.bias_grad.data == nullptr ? 0 : ceil_div(p.m, slab);
    a = lines_a.aligned() ? 0 : lines_a.aligned_bytes();
    b = lines_b.aligned() ? 0 : lines_b.aligned_bytes();
    b_up = p.b_up.data != nullptr && !lines_up.aligned() ? lines_up.aligned_bytes() : 0;
    products = whole ? 0 : splits * p.m * part_ld * int64_t{sizeof(float)};
    column_sums = round_up(sum_rows * p.n * int64_t{sizeof(float)}, kAlignment);
  }
  int64_t bytes() const { return a + b + b_up + products + column_sums + shares.bytes(); }

  int64_t split_k, splits, part_ld;
  SharesRoom shares;
  int64_t sum_rows = 0;
  int64_t a = 0, b = 0, b_up = 0, products = 0, column_sums = 0;
};

}  // namespace

int64_t gemm_workspace_bytes(const GemmProblem& problem, const GemmPlan& plan) {
  return problem.m == 0 || problem.n == 0 ? 0 : WorkspaceParts(problem, plan).bytes();
}

void gemm_by_plan(const Exec& exec, const GemmProblem& problem, const GemmPlan& plan) {
  check_plan(exec, problem, plan);
  GemmProblem p = problem;
  if (p.m == 0 || p.n == 0) {
    if (p.bias_grad.data != nullptr && p.n > 0) launch_bias_grad(exec, p, nullptr, 0);
    return;
  }
  if (p.accumulate) p.residual = p.c;  // the epilogue adds c

  const WorkspaceParts room(p, plan);
  GemmWork work = {.tile = plan.tile, .split_k = room.split_k};
  work.splits = room.splits;
  work.cluster = plan.cluster;
  const auto packs = [&](const Matrix& m, int64_t rows) {
    return m.data == nullptr || lines_of(m, rows, p.n).aligned();
  };
  work.packs = packs(p.c, p.m) && packs(p.aux, p.m) && packs(p.residual, p.m) && packs(p.bias, 1) &&
               packs(p.aux_up, p.m) && packs(p.c_up, p.m);
  const bool whole = work.splits == 1;

  // The workspace is reserved once for all parts, because a second reservation would invalidate the
  // first.
  Matrix parts = {.dtype = DType::kF32, .ld = room.part_ld};
  char* memory = static_cast<char*>(scratch_bytes("gemm", exec, room.bytes()));
  const auto take = [&memory](int64_t bytes) { return std::exchange(memory, memory + bytes); };
  if (room.a > 0) p.a = align_lines(exec, lines_of(p.a, p.m, p.k), take(room.a));
  if (room.b > 0) p.b = align_lines(exec, lines_of(p.b, p.k, p.n), take(room.b));
  if (room.b_up > 0) p.b_up = align_lines(exec, lines_of(p.b_up, p.k, p.n), take(room.b_up));
  parts.data = take(room.products);
  if (room.sum_rows > 0) work.column_sums = reinterpret_cast<float*>(take(room.column_sums));
  work.shares = room.shares.in(exec, take(room.shares.bytes()));

  if (whole) {
    launch_product(exec, p, work);
  } else {
    GemmProblem product;
    product.m = p.m, product.n = p.n, product.k = p.k;
    product.a = p.a, product.b = p.b, product.c = parts;
    product.tf32 = p.tf32;
    GemmWork part_work = work;
    part_work.packs = true;
    part_work.column_sums = nullptr;
    launch_product(exec, product, part_work);
    launch_add_parts(exec, p, work, parts);
  }
  if (p.bias_grad.data != nullptr) launch_bias_grad(exec, p, work.column_sums, room.sum_rows);
}

template <>
void run(const Exec& exec, const GemmArgs& args) {
  const GemmProblem problem = gemm_problem(exec, args);
  const GemmPlan plan = args.plan != nullptr ? *args.plan : gemm_plan(problem, gemm_means(exec));
  if (plan.engine == GemmEngine::kVendor) {
    throw UnavailableError("gemm: cuBLASLt was requested, but this build or device lacks it");
  }
  gemm_by_plan(exec, problem, plan);
}

}  // namespace shale::kernels::SHALE_BACKEND
