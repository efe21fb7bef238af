#pragma once

#include "shale/kernels/cuda/gemm/gemm90_kernel.cuh"
#include "shale/kernels/cuda/gemm/grouped_gemm90.h"

namespace shale::kernels::SHALE_BACKEND {

// Grouped GEMMs with gemm90_kernel: blocks take the tiles of all groups from one queue. The copies
// of a stage may include rows of the next group, but no result uses them: rows of c beyond a
// group's end are not stored, and a group has a multiple of 16 elements of k, the k of one wgmma.

template <bool kGroupsOfK_>
struct GroupedGemm90Params : Gemm90Params {
  static constexpr bool kGroupsOfB = !kGroupsOfK_, kGroupsOfK = kGroupsOfK_;
  static constexpr bool kShares = false, kClusters = false;
  const RowTile* row_list = nullptr;  // tile rows with kRows, see GroupedWork
  const int32_t* row_count = nullptr;
  const int32_t* offsets = nullptr;
};

__device__ __forceinline__ int gemm90_items(const GroupedGemm90Params<false>& params) {
  return *params.row_count * params.col_tiles;
}

template <bool kGroupsOfK>
__device__ __forceinline__ bool may_go_by_boxes(const GroupedGemm90Params<kGroupsOfK>&,
                                                const Gemm90Item& item, int slab) {
  return item.row + (slab + 1) * kGemm90SlabRows <= item.row_end;
}

template <class Config>
__device__ __forceinline__ Gemm90Item gemm90_item(const GroupedGemm90Params<false>& params,
                                                  int number) {
  const TileIndex tile = tile_of_block(number, *params.row_count, params.col_tiles);
  const RowTile rows = params.row_list[tile.row];
  return {.row = rows.row,
          .row_end = rows.row_end,
          .col = tile.col * Config::kOutCols,
          .a_row = rows.row,
          .group = rows.group,
          .k_begin = 0,
          .k_end = static_cast<int>(params.problem.k)};
}

template <class Config>
__device__ __forceinline__ Gemm90Item gemm90_item(const GroupedGemm90Params<true>& params,
                                                  int number) {
  const int tiles = params.row_tiles * params.col_tiles, group = number / tiles;
  const TileIndex tile = tile_of_block(number % tiles, params.row_tiles, params.col_tiles);
  const int m = static_cast<int>(params.problem.m), k = static_cast<int>(params.problem.k);
  const int row = tile.row * Config::kRows;
  return {.row = group * m + row,
          .row_end = (group + 1) * m,
          .col = tile.col * Config::kOutCols,
          .a_row = row,
          .group = group,
          .k_begin = offset_at(params.offsets, group, k),
          .k_end = offset_at(params.offsets, group + 1, k)};
}

// ---- Host side; each instantiation is in a separate file ----

// Returns a map of the matrices of all groups, which have `lines` lines each, one after the other.
inline TensorMap groups_map(const Matrix& matrix, int64_t groups, int64_t lines, int64_t length,
                            int64_t box_lines) {
  constexpr int64_t kAligned = 8;
  const int64_t ld = groups * lines > 1 ? matrix.ld : ceil_div(length, kAligned) * kAligned;
  return make_tensor_map({.data = matrix.data,
                          .dtype = matrix.dtype,
                          .dims = 3,
                          .sizes = {length, lines, groups},
                          .strides = {1, ld, lines * ld},
                          .box = {64, box_lines, 1}});
}

template <typename T, class Config, bool kATransposed, bool kBTransposed, bool kGroupsOfK>
void launch_grouped90_kernel(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  const GemmProblem& p = g.product;
  GroupedGemm90Params<kGroupsOfK> params{};
  params.problem = p;
  params.work.packs = work.packs;
  params.row_list = work.row_tiles, params.row_count = work.row_tile_count;
  params.offsets = g.offsets;
  params.a = kATransposed ? operand_map(p.a, p.k, p.m, Config::kDepth)
                          : operand_map(p.a, p.m, p.k, Config::kRows);
  constexpr int kBoxLines = Config::kPaired ? kPairCols : Config::kCols;
  if constexpr (kGroupsOfK) {
    params.b = operand_map(p.b, p.k, p.n, Config::kDepth);
  } else {
    const auto map = [&](const Matrix& matrix) {
      return kBTransposed ? groups_map(matrix, g.groups, p.n, p.k, kBoxLines)
                          : groups_map(matrix, g.groups, p.k, p.n, Config::kDepth);
    };
    params.b = map(p.b);
    if (Config::kPaired) params.b_up = map(p.b_up);
  }
  set_outputs<Config>(params, kGroupsOfK ? g.groups * p.m : p.m);
  params.row_tiles = static_cast<int>(ceil_div(p.m, Config::kRows));
  params.col_tiles = static_cast<int>(ceil_div(p.n, Config::kOutCols));
  const int64_t all_rows = kGroupsOfK ? g.groups * params.row_tiles : work.most_row_tiles;
  // An upper limit of the number of items.
  params.items = static_cast<int>(all_rows * params.col_tiles);
  params.next_item = tile_counter(exec);
  simt::launch(
      gemm90_kernel<T, Config, kATransposed, kBTransposed, GroupedGemm90Params<kGroupsOfK>>,
      {.grid = persistent_blocks(exec, params.items),
       .block = Config::kThreads,
       .smem_bytes = gemm90_shared_bytes<Config>()},
      exec, params);
}

// Launches the kernel. Pairs: the Config with tiles for SwiGLU's two GEMMs.
template <typename T, class Config, class Pairs>
void launch_grouped90_tile(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  if (g.by == GroupedBy::kInner) {
    if constexpr (Config::kOwnSlabs * Config::kCols <= 128) {
      return launch_grouped90_kernel<T, Config, true, false, true>(exec, g, work);
    }
    throw InternalError("grouped_gemm: this tile has too many columns for groups of k");
  }
  if (g.product.epilogue == Epilogue::kSwiGlu) {
    return launch_grouped90_kernel<T, Pairs, false, true, false>(exec, g, work);
  }
  if (g.product.b.transposed) {
    return launch_grouped90_kernel<T, Config, false, true, false>(exec, g, work);
  }
  launch_grouped90_kernel<T, Config, false, false, false>(exec, g, work);
}

template <typename T>
void launch_grouped90(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  switch (work.tile) {
    case GemmTile::kHopper128x128:
      return launch_grouped90_tile<T, Gemm90Config<128, 6>, Gemm90Config<128, 6, true>>(exec, g,
                                                                                        work);
    case GemmTile::kHopper128x256:
      return launch_grouped90_tile<T, Gemm90Config<256, 4>, Gemm90Config<256, 4, true>>(exec, g,
                                                                                        work);
    case GemmTile::kHopperPingPong128x128:
      return launch_grouped90_tile<T, Gemm90PingPong<6>, Gemm90PingPong<6, true>>(exec, g, work);
    default: throw InternalError("grouped_gemm: no Hopper kernel has this tile");
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
