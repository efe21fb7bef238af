#pragma once

#include "shale/kernels/cuda/gemm/gemm90.cuh"
#include "shale/kernels/cuda/ring.cuh"
#include "shale/kernels/cuda/tile_queue.cuh"
#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// The sizes of a block's work. Two warpgroups multiply, each 64 rows of a tile, a slab; a third one
// loads. With 256 columns a thread has 128 sums, which with 8 warps on the multiprocessor leaves a
// hundred registers for all else; a stage is 48 KiB, and four of them with what the epilogue needs
// fill shared memory. The narrower tiles are for products with few tiles. With kPaired a tile's
// columns are those of SwiGLU's two products in turns, see kPairCols, of which c has half as many.
template <int kCols_, int kStages_, bool kPaired_ = false>
struct Gemm90Config {
  static constexpr int kRows = 128, kCols = kCols_, kDepth = 64, kStages = kStages_;
  static constexpr bool kPaired = kPaired_;
  static constexpr int kOutCols = kPaired ? kCols / 2 : kCols;  // of c
  static constexpr int kSlabs = kRows / kGemm90SlabRows;        // of a tile
  static constexpr bool kPingPong = false;
  static constexpr bool kClusters = kCols >= 128;  // see cluster_blocks()
  static constexpr int kOwnSlabs = 1;              // of a warpgroup
  static constexpr int kMultipliers = 2;           // warpgroups that multiply
  static constexpr int kThreads = (kMultipliers + 1) * kWarpgroupSize;

  // ---- Bytes of shared memory. A box has lines of 128 bytes: 64 elements. ----
  static constexpr int kBox = kDepth * 128;  // of 64 lines
  static constexpr int kA = kRows * 128, kB = kCols * 128, kStage = kA + kB;
  static constexpr int kRing = kStages * kStage;
  static constexpr int kStaging = kBox + kGemm90SlabRows * 32 * 4;  // of a warpgroup's epilogue
};

// Two tiles of 128 columns at a time: each warpgroup has one to itself, both slabs of it, and takes
// its turn at the tensor cores, so that its epilogue runs beside the other's products. A thread has
// as many sums as with 256 columns, but a third more comes from memory for each product: this is
// for products whose epilogues take long beside their k.
template <int kStages_, bool kPaired_ = false>
struct Gemm90PingPong : Gemm90Config<128, kStages_, kPaired_> {
  static constexpr bool kPingPong = true;
  static constexpr int kOwnSlabs = Gemm90PingPong::kSlabs;
};

// The sums of a thread, of each slab that its warpgroup has of a tile.
template <class Config>
using Gemm90Sums = float[Config::kOwnSlabs][Config::kCols / 2];

// What the block's threads meet at, behind the rest of shared memory.
template <int kStages>
struct Gemm90Barriers {
  MBarrier full[kStages], empty[kStages];
  TileQueue items;
  uint32_t all_written[2];  // of a warpgroup: what its first thread has found out for PartSums
};

template <class Config>
constexpr size_t gemm90_shared_bytes() {
  return Config::kRing + Config::kMultipliers * Config::kStaging +
         sizeof(Gemm90Barriers<Config::kStages>);
}

// Arguments of a launch.
struct Gemm90Params {
  // Whether b has a matrix for each group, a third dimension of its map; and whether k is cut into
  // groups (grouped_gemm90.cuh).
  static constexpr bool kGroupsOfB = false, kGroupsOfK = false;
  // Whether tiles may have several blocks, which do shares of their k.
  static constexpr bool kShares = true;
  // Whether blocks may form clusters, of blocks whose tiles lie one below the other: each reads a
  // part of the columns of b that they share, for all (GemmPlan::cluster).
  static constexpr bool kClusters = true;
  TensorMap a,
      b;  // boxes of a stage: 64 of k, and rows or columns 64 at a time where k is the line
  TensorMap b_up;  // like b, which has boxes of 16 columns then; only where tiles are paired
  // [m, n], boxes of 64 rows and 128 bytes; only with by_boxes, and aux where tiles are paired.
  TensorMap c, aux, aux_up;
  GemmProblem problem;
  GemmWork work;
  int cluster = 1;                   // blocks of one
  int row_tiles = 0, col_tiles = 0;  // a cluster's count as one
  int items = 0;                     // those tiles that are whole, and shares of the others
  uint32_t* next_item = nullptr;     // see tile_queue.cuh
  bool by_boxes = false;             // c, of 16 bits, goes to memory by the copy engine,
  bool unchanged = false;            // and no operand but a bias changes the products
};

// A tile of c and what a block does of its k.
struct Gemm90Item {
  int row, row_end;  // of the tile's first element; where the rows that it may have end
  int col;
  int a_row;  // what `row` is called in a
  int group, k_begin, k_end;
  int tile = 0, share = -1;  // where the tile is shared, or may be
};

__device__ __forceinline__ int gemm90_items(const Gemm90Params& params) {
  return params.items;
}

// Whether the copy engine may take the rows of a warpgroup's slab from `row` on to c, where c goes
// that way: it would write those beyond the tile's end too, which are nobody's here.
__device__ __forceinline__ bool may_go_by_boxes(const Gemm90Params&, const Gemm90Item&, int) {
  return true;
}

template <class Config>
__device__ __forceinline__ Gemm90Item gemm90_item(const Gemm90Params& params, int number) {
  const TileIndex tile = tile_of_block(number, params.row_tiles, params.col_tiles);
  // Of an odd number of tiles the last cluster has one that begins below c.
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
