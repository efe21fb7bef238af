#pragma once

#include <cstdint>

#include "shale/base/device.h"
#include "shale/base/dtype.h"
#include "shale/base/exec.h"

namespace shale::kernels {

struct GemmProblem;

// Multiprocessors of an H100, for which plans are made where the GPU's number is unknown.
inline constexpr int kNominalSms = 132;

// Rows and columns of c that one thread block of the hand-written GPU kernels computes. kHopper*
// tiles have kernels of their own, for compute capability 9.0 only. A block of
// kHopperPingPong128x128 computes two tiles at a time: the epilogue of one overlaps the main loop
// of the other.
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

// How a GPU runs a GEMM. Only the plan determines the bits of the result: the order in which blocks
// run does not. The cluster size and the number of SMs matter only together with shares, because
// they determine which tiles are shared.
struct GemmPlan {
  GemmEngine engine = GemmEngine::kOwn;
  // ---- Hand-written kernels ----
  GemmTile tile = GemmTile::k64x64;
  // Portable tiles: number of parts of k (split-K). The partial results go to the workspace in f32
  // and are then added in order.
  int splits = 1;
  // Blocks per cluster: the blocks have tiles in one column and share their reads of b. 1 or
  // cluster_blocks(tile).
  int cluster = 1;
  // Hopper tiles: the k stages of the last tiles (TileCounts::shared), tile after tile, are split
  // into this number of equal shares, one per block (stream-K; Osama et al., arXiv:2301.03598). The
  // block that finishes the last share of a tile adds the shares in order. 0: no tile is shared.
  int shares = 0;
  // Number of SMs for which the tiles to share were chosen.
  int sms = kNominalSms;

  friend bool operator==(const GemmPlan&, const GemmPlan&) = default;
};

int64_t rows_of(GemmTile tile);
int64_t cols_of(GemmTile tile);
bool is_hopper(GemmTile tile);
// Maximum number of blocks in a cluster: 2 for Hopper tiles except the narrowest, which has too few
// columns of b to divide; 1 for all others.
int cluster_blocks(GemmTile tile);
const char* name_of(GemmTile tile);  // name as in the source: "k64x64"

// Returns whether a tile has a kernel for the problem. 16-bit operands: all tiles; f32: k64x64 and
// k128x128; both operands transposed: only k64x64. Hopper tiles need k > 0 and splits == 1. With
// kSwiGlu, half of a tile's columns come from b and half from b_up, for which kHopper128x64 is too
// narrow; splits must be 1.
bool has_kernel(const GemmProblem& problem, GemmTile tile, int splits = 1);

// Best cluster size for a tile: cluster_blocks(tile), unless the number of tile rows is odd and the
// idle half of the last cluster would make the GPU busy for longer.
int best_cluster(const GemmProblem& problem, GemmTile tile, int sms = kNominalSms);

// ---- Shared tiles (stream-K) ----

// Unit of k in which shares are split.
inline constexpr int64_t kStageOfShares = 64;

// Number of all tiles, and number of shared tiles. Shared are the last tiles, which do not fill all
// clusters of `sms` SMs. The tiles of a cluster count as one.
struct TileCounts {
  int64_t all = 0, shared = 0;
};
TileCounts tiles_of(const GemmProblem& problem, GemmTile tile, int cluster, int sms = kNominalSms);

// Returns whether a tile can be shared: Hopper tiles except ping-pong.
bool can_share(GemmTile tile);
// Returns whether the k of `tiles` tiles can be split into `shares` shares: no share is empty, and
// the kernels' index arithmetic fits 32 bits.
bool can_cut(const GemmProblem& problem, int64_t tiles, int64_t shares);
// Cycles that sharing costs a multiprocessor besides the matmul: it writes its parts to the L2
// cache, waits for that and for the counter, and reads all parts of a tile.
double sharing_cycles(GemmTile tile, int64_t tiles, int64_t shares);
// Returns the best value of GemmPlan::shares according to the time model.
int best_shares(const GemmProblem& problem, GemmTile tile, int cluster, int sms = kNominalSms);

// GEMM implementations that are available besides the kernels for all GPUs.
struct GemmMeans {
  bool vendor = false;  // cuBLASLt is available
  bool hopper = false;  // the device has compute capability 9.0
  // The device has compute capability 10.x or 11.0. cuBLASLt uses its tensor core instructions
  // (tcgen05), which the hand-written kernels lack.
  bool tcgen05 = false;
  // Maximum shared memory of a block, which limits the tiles. Graphics GPUs have less.
  size_t shared_bytes = size_t{163} << 10;
  int sms = kNominalSms;  // multiprocessors that a GEMM may use
};
GemmMeans gemm_means(const Device& device);  // leaves `vendor` false
// Counts the SMs of the GPU, minus the SMs that collectives of the run may reserve.
GemmMeans gemm_means(const Exec& exec);
int sms_of(const Exec& exec);
bool can_run(GemmTile tile, const GemmMeans& means);
// Maximum, over all dtypes, of the shared memory that a block of a tile's portable kernel needs.
constexpr size_t shared_bytes_of(GemmTile tile) {
  switch (tile) {
    case GemmTile::k64x64: return size_t{32} << 10;
    case GemmTile::k128x64: return size_t{48} << 10;
    case GemmTile::k128x128: return size_t{68} << 10;
    default: return size_t{132} << 10;
  }
}

// Returns the plan for a GPU: the measured one from gemm_table.inc for this class of GEMMs, else
// one from a time model. It depends only on sizes, layouts, dtypes and means, on which all ranks
// agree (ReservedSms::total), so that they compute the same bits.
GemmPlan gemm_plan(const GemmProblem& problem, const GemmMeans& means);

// Returns the tile for a grouped GEMM (grouped_gemm.h) with `groups` groups like `group`, according
// to the time model.
GemmTile grouped_gemm_tile(const GemmProblem& group, int64_t groups, const GemmMeans& means);

// Class of GEMMs with the same dtype, layouts and number of binary digits of each size.
struct GemmClass {
  DType in = DType::kF32;
  bool a_transposed = false, b_transposed = false;
  int m_bits = 0, n_bits = 0, k_bits = 0;

  friend bool operator==(const GemmClass&, const GemmClass&) = default;
};
GemmClass class_of(const GemmProblem& problem);

}  // namespace shale::kernels
