#pragma once

#include "shale/kernels/cuda/gemm/gemm_kernel.cuh"
#include "shale/kernels/grouped_gemm.h"

namespace shale::kernels::SHALE_BACKEND {

// A tile row, which belongs to one group.
struct RowTile {
  int32_t group, row, row_end;
};

// How a launch runs a grouped GEMM.
struct GroupedWork {
  GemmTile tile = GemmTile::k64x64;
  bool packs = false;  // as in GemmWork
  // With kRows: the tile rows of all groups, in order, and their number.
  const RowTile* row_tiles = nullptr;
  const int32_t* row_tile_count = nullptr;
  int64_t most_row_tiles = 0;  // maximum of *row_tile_count for any offsets
};

// Launch the kernel for a and b of the dtype in the function's name. a, b and b_up, and their
// lines, must be 16-byte aligned.
void launch_grouped_gemm_bf16(const Exec& exec, const GroupedProblem& g, const GroupedWork& work);
void launch_grouped_gemm_f16(const Exec& exec, const GroupedProblem& g, const GroupedWork& work);
void launch_grouped_gemm_f32(const Exec& exec, const GroupedProblem& g, const GroupedWork& work);
void launch_grouped_gemm_tf32(const Exec& exec, const GroupedProblem& g, const GroupedWork& work);

// ---- The kernels; each instantiation is in a separate file ----

// Kernel for groups of rows: blocks take the tiles of all groups in the order of the list.
template <typename T, class Config, bool kBTransposed, bool kPaired>
__global__ void __launch_bounds__(Config::kThreads, (kResident<Config, kPaired>))
    grouped_rows_kernel(const GroupedProblem g, const GroupedWork work, int col_tiles) {
  await_previous_grid();
  const GemmProblem& p = g.product;
  if (static_cast<int>(blockIdx.x) >= *work.row_tile_count * col_tiles) return;
  multiply_part<T, Config, false, kBTransposed, kPaired>(p, work.packs, [&](int number) {
    const TileIndex index = tile_of_block(number, *work.row_tile_count, col_tiles);
    const RowTile tile = work.row_tiles[index.row];
    const int64_t lines = kBTransposed ? p.n : p.k;  // lines of a group's matrix in b
    return GemmPart{.row = tile.row,
                    .row_end = tile.row_end,
                    .col = int64_t{index.col} * (kPaired ? Config::kCols / 2 : Config::kCols),
                    .a_row = tile.row,
                    .c_row = tile.row,
                    .b_offset = tile.group * lines * p.b.ld,
                    .k_end = static_cast<int>(p.k)};
  });
}

// Returns offset `number`, clamped to [0, most].
__device__ __forceinline__ int offset_at(const int32_t* offsets, int64_t number, int most) {
  const int32_t offset = offsets[number];
  return offset < 0 ? 0 : offset > most ? most : offset;
}

// Kernel for groups of k: a block has a tile of one group's c; the c of all groups form one tall
// matrix.
template <typename T, class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    grouped_inner_kernel(const GroupedProblem g, const GroupedWork work, int row_tiles,
                         int col_tiles) {
  await_previous_grid();
  const GemmProblem& p = g.product;
  multiply_part<T, Config, true, false, false>(p, work.packs, [&](int block) {
    const TileIndex index = tile_of_block(block, row_tiles, col_tiles);
    const int64_t group = blockIdx.z, row = int64_t{index.row} * Config::kRows;
    const int most = static_cast<int>(p.k);
    return GemmPart{.row = group * p.m + row,
                    .row_end = (group + 1) * p.m,
                    .col = int64_t{index.col} * Config::kCols,
                    .a_row = row,
                    .c_row = group * p.m + row,
                    .k_begin = offset_at(g.offsets, group, most),
                    .k_end = offset_at(g.offsets, group + 1, most)};
  });
}

template <typename T, class Config, bool kBTransposed, bool kPaired = false>
void launch_grouped_rows(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  const int64_t col_tiles = ceil_div(g.product.n, kPaired ? Config::kCols / 2 : Config::kCols);
  simt::launch(grouped_rows_kernel<T, Config, kBTransposed, kPaired>,
               {.grid = work.most_row_tiles * col_tiles,
                .block = Config::kThreads,
                .smem_bytes = gemm_shared_bytes<Config, T>()},
               exec, g, work, static_cast<int>(col_tiles));
}

template <typename T, class Config>
void launch_grouped_inner(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  const int64_t row_tiles = ceil_div(g.product.m, Config::kRows);
  const int64_t col_tiles = ceil_div(g.product.n, Config::kCols);
  simt::launch(grouped_inner_kernel<T, Config>,
               {.grid = {row_tiles * col_tiles, 1, g.groups},
                .block = Config::kThreads,
                .smem_bytes = gemm_shared_bytes<Config, T>()},
               exec, g, work, static_cast<int>(row_tiles), static_cast<int>(col_tiles));
}

template <typename T, class Config>
void launch_grouped_tile(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  if (g.by == GroupedBy::kInner) return launch_grouped_inner<T, Config>(exec, g, work);
  if (g.product.epilogue == Epilogue::kSwiGlu) {
    return launch_grouped_rows<T, Config, true, true>(exec, g, work);
  }
  if (g.product.b.transposed) return launch_grouped_rows<T, Config, true>(exec, g, work);
  launch_grouped_rows<T, Config, false>(exec, g, work);
}

template <typename T, class Small = GemmConfig<T, GemmTile::k64x64>,
          class Large = GemmConfig<T, GemmTile::k128x128>>
void launch_grouped(const Exec& exec, const GroupedProblem& g, const GroupedWork& work) {
  switch (work.tile) {
    case GemmTile::k64x64: return launch_grouped_tile<T, Small>(exec, g, work);
    case GemmTile::k128x128: return launch_grouped_tile<T, Large>(exec, g, work);
    default: throw InternalError("grouped_gemm: no kernel has this tile");
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
