#pragma once

#include "shale/kernels/cuda/gemm/gemm90.cuh"
#include "shale/kernels/cuda/ring.cuh"
#include "shale/kernels/cuda/tile_queue.cuh"
#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// Sizes of a thread block's tile and stages. Two warpgroups multiply, each 64 rows of a tile (a
// slab); a third one loads. With 256 columns a thread has 128 accumulators, which with 8 warps per
// multiprocessor leaves about a hundred registers for other values. A stage is 48 KiB; four stages
// and the epilogue's memory fill shared memory. The narrower tiles are for GEMMs with few tiles.
// With kPaired a tile's columns alternate between SwiGLU's two GEMMs, see kPairCols, and c has half
// as many.
template <int kCols_, int kStages_, bool kPaired_ = false>
struct Gemm90Config {
  static constexpr int kRows = 128, kCols = kCols_, kDepth = 64, kStages = kStages_;
  static constexpr bool kPaired = kPaired_;
  static constexpr int kOutCols = kPaired ? kCols / 2 : kCols;  // columns of c
  static constexpr int kSlabs = kRows / kGemm90SlabRows;        // slabs of 64 rows per tile
  static constexpr bool kPingPong = false;
  static constexpr bool kClusters = kCols >= 128;  // true if cluster_blocks() is 2
  static constexpr int kOwnSlabs = 1;              // slabs per warpgroup
  static constexpr int kMultipliers = 2;           // multiplying warpgroups
  static constexpr int kThreads = (kMultipliers + 1) * kWarpgroupSize;

  // ---- Bytes of shared memory. A box has lines of 128 bytes: 64 elements. ----
  static constexpr int kBox = kDepth * 128;  // 64 lines of 128 bytes
  static constexpr int kA = kRows * 128, kB = kCols * 128, kStage = kA + kB;
  static constexpr int kRing = kStages * kStage;
  // Memory of a warpgroup's epilogue.
  static constexpr int kStaging = kBox + kGemm90SlabRows * 32 * 4;
};

// A block with two tiles of 128 columns at a time: each warpgroup has one tile with both slabs, and
// they take turns at the tensor cores, so that the epilogue of one overlaps the main loop of the
// other. A thread has as many accumulators as with 256 columns, but each multiply-add loads a third
// more from memory. This is for GEMMs whose epilogues are long compared with k.
template <int kStages_, bool kPaired_ = false>
struct Gemm90PingPong : Gemm90Config<128, kStages_, kPaired_> {
  static constexpr bool kPingPong = true;
  static constexpr int kOwnSlabs = Gemm90PingPong::kSlabs;
};

// A thread's accumulators, for each slab that its warpgroup has.
template <class Config>
using Gemm90Sums = float[Config::kOwnSlabs][Config::kCols / 2];

// The block's mbarriers, which follow the other data in shared memory.
template <int kStages>
struct Gemm90Barriers {
  MBarrier full[kStages], empty[kStages];
  TileQueue items;
  uint32_t all_written[2];  // results of PartSums::is_last(), one per warpgroup
};

template <class Config>
constexpr size_t gemm90_shared_bytes() {
  return Config::kRing + Config::kMultipliers * Config::kStaging +
         sizeof(Gemm90Barriers<Config::kStages>);
}

// Arguments of the kernel.
struct Gemm90Params {
  // kGroupsOfB: b has a matrix per group, as the third dimension of its map. kGroupsOfK: k is
  // divided into groups (grouped_gemm90.cuh).
  static constexpr bool kGroupsOfB = false, kGroupsOfK = false;
  // True: several blocks may share a tile, each with a part of k.
  static constexpr bool kShares = true;
  // True: blocks may form clusters, with tiles in one column; each block loads a part of their
  // common columns of b for all blocks (GemmPlan::cluster).
  static constexpr bool kClusters = true;
  TensorMap a,
      b;           // boxes: all rows by 64 of k, or 64 rows by all k of a stage
  TensorMap b_up;  // like b, with boxes of 16 columns; only if kPaired
  // Maps of [m, n] matrices in boxes of 64 rows and 128 bytes. They are used only if by_boxes is
  // set; aux and aux_up only with kPaired too.
  TensorMap c, aux, aux_up;
  GemmProblem problem;
  GemmWork work;
  int cluster = 1;                   // blocks per cluster
  int row_tiles = 0, col_tiles = 0;  // number of tiles; the tiles of a cluster count as one
  int items = 0;  // number of unshared tiles plus number of shares of shared tiles
  uint32_t* next_item = nullptr;     // counter of items, see tile_queue.cuh
  bool by_boxes = false;             // TMA stores c, which is 16-bit
  bool unchanged = false;            // by_boxes is set, and the epilogue is at most a bias
};

// A block's work: a tile of c, or a part of the tile's k that belongs to a share.
struct Gemm90Item {
  int row, row_end;  // row: first row of the tile; row_end: one past its last valid row
  int col;
  int a_row;  // first row of the tile in a
  int group, k_begin, k_end;
  // Numbers of the tile and of the share; share -1: the tile is not shared.
  int tile = 0, share = -1;
};

__device__ __forceinline__ int gemm90_items(const Gemm90Params& params) {
  return params.items;
}

// Returns whether TMA may store a warpgroup's slab to c, if by_boxes is set. TMA would also write
// the slab's rows beyond the tile's end. It may, because these rows are outside of c.
__device__ __forceinline__ bool may_go_by_boxes(const Gemm90Params&, const Gemm90Item&, int) {
  return true;
}

template <class Config>
__device__ __forceinline__ Gemm90Item gemm90_item(const Gemm90Params& params, int number) {
  const TileIndex tile = tile_of_block(number, params.row_tiles, params.col_tiles);
  // If the number of tile rows is odd, the second tile of the last cluster begins below c.
  const int row = (tile.row * params.cluster + cluster_rank()) * Config::kRows;
  return {.row = row,
          .row_end = static_cast<int>(params.problem.m),
          .col = tile.col * Config::kOutCols,
          .a_row = row,
          .group = 0,
          .k_begin = 0,
          .k_end = static_cast<int>(params.problem.k)};
}

}  // namespace shale::kernels::SHALE_BACKEND
