#include "shale/kernels/grouped_gemm.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/gemm/gemm_lines.h"
#include "shale/kernels/cuda/gemm/grouped_gemm90.h"
#include "shale/kernels/cuda/gemm/grouped_gemm_kernel.cuh"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/reduce/block_scan.cuh"
#include "shale/kernels/cuda/run.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr const char* kOp = "grouped_gemm";
constexpr int kListThreads = 256;

// Kernel that lists the tile rows of all groups. It has one block; each thread has the same number
// of neighbouring groups. The list has at most `most` entries, which is enough for non-decreasing
// offsets.
__global__ void __launch_bounds__(kListThreads)
    list_row_tiles_kernel(const int32_t* offsets, int groups, int rows, int tile_rows,
                          RowTile* list, int32_t* count, int most) {
  await_previous_grid();
  const int thread = static_cast<int>(threadIdx.x);
  const int share = (groups + kListThreads - 1) / kListThreads, begin = thread * share;
  const int end = begin + share < groups ? begin + share : groups;
  const auto tiles_of = [&](int group) {
    const int size = offset_at(offsets, group + 1, rows) - offset_at(offsets, group, rows);
    return size > 0 ? (size + tile_rows - 1) / tile_rows : 0;
  };
  int tiles = 0;
  for (int group = begin; group < end; ++group) tiles += tiles_of(group);
  int at = sum_before<kListThreads>(tiles);
  if (thread == kListThreads - 1) *count = at + tiles < most ? at + tiles : most;
  for (int group = begin; group < end; ++group) {
    const int row_end = offset_at(offsets, group + 1, rows);
    for (int row = offset_at(offsets, group, rows); row < row_end && at < most; ++at) {
      list[at] = {.group = group, .row = row, .row_end = row_end};
      row += tile_rows;
    }
  }
}

// Returns the lines of an operand: those of all groups if it has a matrix per group.
Lines all_lines(const GroupedProblem& g, const Matrix& matrix, int64_t rows, int64_t cols,
                bool per_group) {
  Lines lines = lines_of(matrix, rows, cols);
  if (per_group) lines.count *= g.groups;
  return lines;
}

void check_sizes(const GemmProblem& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (std::max({p.m, p.n, p.k}) <= kMost) return;
  throw ShapeError(cat(kOp, ": [", p.m, ",", p.k, "] times [", p.k, ",", p.n,
                       "], expected no size above ", kMost, " on a GPU"));
}

// Returns whether Hopper's kernels support the problem.
bool takes_hopper(const Exec& exec, const GroupedProblem& g) {
  constexpr int64_t kStep = 16;  // k of one wgmma
  const bool whole_steps = g.by == GroupedBy::kRows || g.align % kStep == 0;
  return is_hopper(exec.device) && g.product.a.dtype != DType::kF32 && g.product.k > 0 &&
         g.groups * g.product.m <= std::numeric_limits<int32_t>::max() && whole_steps;
}

// Returns whether a Hopper tile's kernel has enough registers: with kInner it also needs the bounds
// of a group, for which 128 accumulators per thread leave no room.
bool has_registers(const GroupedProblem& g, GemmTile tile) {
  return g.by == GroupedBy::kRows ||
         (tile != GemmTile::kHopper128x256 && tile != GemmTile::kHopperPingPong128x128);
}

GemmTile tile_for(const Exec& exec, const GroupedProblem& g, const GemmTile* wanted) {
  const bool hopper = takes_hopper(exec, g);
  if (wanted != nullptr) {
    const bool runs = is_hopper(*wanted) ? hopper : can_run(*wanted, gemm_means(exec.device));
    if (runs && has_registers(g, *wanted)) return *wanted;
    throw UnavailableError(cat(kOp, ": no kernel with tile ", name_of(*wanted), " for ",
                               dtype_name(g.product.a.dtype), " and groups of multiples of ",
                               g.align, " on ", exec.device));
  }
  GemmProblem group = g.product;
  int64_t& cut = g.by == GroupedBy::kRows ? group.m : group.k;
  cut = std::max<int64_t>(ceil_div(cut, g.groups), 1);
  GemmMeans means = gemm_means(exec);
  means.hopper = hopper;
  const GemmTile tile = grouped_gemm_tile(group, g.groups, means);
  return has_registers(g, tile) ? tile : GemmTile::kHopper128x128;
}

void launch_grouped_product(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  if (is_hopper(work.tile)) {
    return g.product.a.dtype == DType::kBF16 ? launch_grouped_gemm90_bf16(exec, g, work)
                                             : launch_grouped_gemm90_f16(exec, g, work);
  }
  switch (g.product.a.dtype) {
    case DType::kBF16: return launch_grouped_gemm_bf16(exec, g, work);
    case DType::kF16: return launch_grouped_gemm_f16(exec, g, work);
    default:
      return g.product.tf32 ? launch_grouped_gemm_tf32(exec, g, work)
                            : launch_grouped_gemm_f32(exec, g, work);
  }
}

}  // namespace

template <>
void run(const Exec& exec, const GroupedGemmArgs& args) {
  GroupedProblem g = grouped_problem(args);
  GemmProblem& p = g.product;
  p.tf32 = takes_tf32(exec, p);
  check_sizes(p);
  const bool by_rows = g.by == GroupedBy::kRows;
  if (p.m == 0 || p.n == 0) return;
  if (p.accumulate) p.residual = p.c;  // the epilogue adds c
  GroupedWork work = {.tile = tile_for(exec, g, args.tile)};
  const auto packs = [&](const Matrix& m) {
    return m.data == nullptr || all_lines(g, m, p.m, p.n, !by_rows).aligned();
  };
  work.packs = packs(p.c) && packs(p.aux) && packs(p.residual) && packs(p.aux_up) && packs(p.c_up);
  if (by_rows) work.most_row_tiles = p.m / rows_of(work.tile) + g.groups;

  const Lines a = lines_of(p.a, p.m, p.k), b = all_lines(g, p.b, p.k, p.n, by_rows);
  const Lines b_up = all_lines(g, p.b_up, p.k, p.n, by_rows);
  const int64_t a_bytes = a.aligned() ? 0 : a.aligned_bytes();
  const int64_t b_bytes = b.aligned() ? 0 : b.aligned_bytes();
  const int64_t up_bytes = p.b_up.data == nullptr || b_up.aligned() ? 0 : b_up.aligned_bytes();
  const int64_t list_bytes = work.most_row_tiles * int64_t{sizeof(RowTile)};
  char* memory = static_cast<char*>(scratch_bytes(
      kOp, exec, a_bytes + b_bytes + up_bytes + list_bytes + int64_t{sizeof(int32_t)}));
  const auto take = [&memory](int64_t bytes) { return std::exchange(memory, memory + bytes); };
  if (a_bytes > 0) p.a = align_lines(exec, a, take(a_bytes));
  if (b_bytes > 0) p.b = align_lines(exec, b, take(b_bytes));
  if (up_bytes > 0) p.b_up = align_lines(exec, b_up, take(up_bytes));
  if (by_rows) {
    auto* const list = reinterpret_cast<RowTile*>(take(list_bytes));
    auto* const count = reinterpret_cast<int32_t*>(take(sizeof(int32_t)));
    work.row_tiles = list, work.row_tile_count = count;
    simt::launch(list_row_tiles_kernel, {.grid = 1, .block = kListThreads}, exec, g.offsets,
                 static_cast<int>(g.groups), static_cast<int>(p.m),
                 static_cast<int>(rows_of(work.tile)), list, count,
                 static_cast<int>(work.most_row_tiles));
  }
  launch_grouped_product(exec, g, work);
}

}  // namespace shale::kernels::SHALE_BACKEND
