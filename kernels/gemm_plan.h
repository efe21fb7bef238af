#pragma once

#include <cstdint>

#include "shale/base/device.h"
#include "shale/base/dtype.h"

namespace shale::kernels {

struct GemmProblem;

// Rows and columns of c that one thread block of the hand-written GPU kernels computes. Those of
// Hopper are kernels of their own, for compute capability 9.0 and nothing else. Of
// kHopperPingPong128x128 a block computes two at a time: one's epilogue runs beside the other's
// products.
enum class GemmTile : uint8_t {
  k64x64,
  k128x64,
  k128x128,
  k128x256,
  kHopper128x64,
  kHopper128x128,
  kHopper128x256,
  kHopperPingPong128x128,
};
inline constexpr int kGemmTiles = 8;

enum class GemmEngine : uint8_t {
  kOwn,
  kVendor,  // cuBLASLt
};

// How a GPU carries out a product. The plan decides the bits of the result, and nothing else does:
// not the number of multiprocessors, nor the order in which blocks run. Clusters decide with shares
// alone, whose tiles they are.
struct GemmPlan {
  GemmEngine engine = GemmEngine::kOwn;
  // ---- Of the hand-written kernels ----
  GemmTile tile = GemmTile::k64x64;
  // Of the portable tiles, parts that k is cut into. Each part's product goes to the workspace in
  // f32; then they are added in order.
  int splits = 1;
  // Blocks that have tiles one below the other and share what they read of b; 1 or
  // cluster_blocks(tile).
  int cluster = 1;
  // Of Hopper's last tiles (TileCounts::shared), all stages of their k, tile after tile, are cut
  // into so many shares of one size, each of which a block does (stream-K; Osama et al.,
  // arXiv:2301.03598). Who has done the last share of a tile adds them up in order. 0: every tile
  // is one block's.
  int shares = 0;

  friend bool operator==(const GemmPlan&, const GemmPlan&) = default;
};

int64_t rows_of(GemmTile tile);
int64_t cols_of(GemmTile tile);
bool is_hopper(GemmTile tile);
// How many blocks form a cluster, where they do: 2 of Hopper's, but for the narrowest tile, whose
// columns of b are too few to part. 1: they never do.
int cluster_blocks(GemmTile tile);
const char* name_of(GemmTile tile);  // as in the source: "k64x64"

// Tiles that there are kernels for: all of them for 16-bit operands, k64x64 and k128x128 in f32; if
// both operands are transposed, k64x64 only. Those of Hopper need a k above 0, and have it in one
// part. With kSwiGlu half of a tile's columns are b's and half b_up's, which kHopper128x64 is too
// narrow for; and no tile has k in parts.
bool has_kernel(const GemmProblem& problem, GemmTile tile, int splits = 1);

// The blocks of a cluster that a product by so many tiles is best done with: cluster_blocks(tile),
// unless an odd number of rows of tiles, of which the last cluster has one too many, would keep the
// GPU busy for longer.
int best_cluster(const GemmProblem& problem, GemmTile tile);

// ---- Tiles that blocks share ----

// Where k can be cut.
inline constexpr int64_t kStageOfShares = 64;

// Tiles of clusters, which count as one; and those of them that come last, and are too few for all
// clusters of a nominal GPU, which an H100 is.
struct TileCounts {
  int64_t all = 0, shared = 0;
};
TileCounts tiles_of(const GemmProblem& problem, GemmTile tile, int cluster);

// Whether tiles can be shared: those of Hopper, but for the ones that take turns.
bool can_share(GemmTile tile);
// Whether the k of so many tiles can be cut into so many shares: none is empty, and what kernels
// compute fits 32 bits.
bool can_cut(const GemmProblem& problem, int64_t tiles, int64_t shares);
// Cycles that sharing so many tiles takes of a multiprocessor besides the products: it writes its
// parts to the second-level cache, waits for that and for the counter, and reads all of a tile.
double sharing_cycles(GemmTile tile, int64_t tiles, int64_t shares);
// By the model of the times: GemmPlan::shares.
int best_shares(const GemmProblem& problem, GemmTile tile, int cluster);

// What there is besides the kernels that run on every GPU.
struct GemmMeans {
  bool vendor = false;  // cuBLASLt can be used
  bool hopper = false;  // the device has compute capability 9.0
  // Of a block: what tiles may take, and what GPUs for graphics have less of.
  size_t shared_bytes = size_t{163} << 10;
};
GemmMeans gemm_means(const Device& device);  // without the library
bool can_run(GemmTile tile, const GemmMeans& means);
// Shared memory of a block of the portable kernels, at most, over all dtypes.
constexpr size_t shared_bytes_of(GemmTile tile) {
  switch (tile) {
    case GemmTile::k64x64: return size_t{32} << 10;
    case GemmTile::k128x64: return size_t{48} << 10;
    case GemmTile::k128x128: return size_t{68} << 10;
    default: return size_t{132} << 10;
  }
}

// The plan for a GPU: what gemm_table.inc says of products of that class, which was measured, else
// a model of the times. A function of sizes, layouts, dtypes and means only, so that ranks on
// different GPUs of one generation compute the same bits.
GemmPlan gemm_plan(const GemmProblem& problem, const GemmMeans& means);

// The tile for a grouped product (grouped_gemm.h) of so many groups, each as `group`: by the model
// of the times, of the tiles that there are such kernels for.
GemmTile grouped_gemm_tile(const GemmProblem& group, int64_t groups, const GemmMeans& means);

// Products are told apart by dtype, layout and the number of binary digits of each size.
struct GemmClass {
  DType in = DType::kF32;
  bool a_transposed = false, b_transposed = false;
  int m_bits = 0, n_bits = 0, k_bits = 0;

  friend bool operator==(const GemmClass&, const GemmClass&) = default;
};
GemmClass class_of(const GemmProblem& problem);

}  // namespace shale::kernels
