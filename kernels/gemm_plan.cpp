#include "shale/kernels/gemm_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <limits>

#include "shale/base/gpu_model.h"
#include "shale/base/reserved_sms.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels {
namespace {

struct TileTraits {
  GemmTile tile;
  const char* name;
  int64_t rows, cols;
  // Multiply-adds per cycle of a fully occupied multiprocessor, relative to the best tile: a
  // smaller tile loads more data per multiply-add.
  double speed_16, speed_f32;  // 0: no kernel
  bool overlaps = false;       // the epilogue overlaps the next tile's main loop
};
// The numbers of the Hopper tiles are guesses until they are measured.
constexpr std::array<TileTraits, kGemmTiles> kTiles = {
    {{GemmTile::k64x64, "k64x64", 64, 64, 0.55, 0.7},
     {GemmTile::k128x64, "k128x64", 128, 64, 0.75, 0},
     {GemmTile::k128x128, "k128x128", 128, 128, 0.95, 1},
     {GemmTile::k128x256, "k128x256", 128, 256, 1, 0},
     {GemmTile::kHopper128x64, "kHopper128x64", 128, 64, 1, 0},
     {GemmTile::kHopper128x128, "kHopper128x128", 128, 128, 1.4, 0},
     {GemmTile::kHopper128x256, "kHopper128x256", 128, 256, 1.7, 0},
     {GemmTile::kHopperPingPong128x128, "kHopperPingPong128x128", 128, 128, 1.4, 0, true}}};

const TileTraits& traits(GemmTile tile) {
  return kTiles[static_cast<size_t>(tile)];
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

bool is_gelu(Epilogue epilogue) {
  return epilogue == Epilogue::kGeluTanh || epilogue == Epilogue::kGeluErf;
}

// Columns of all tiles together: twice n for the two GEMMs of SwiGLU.
int64_t product_cols(const GemmProblem& p) {
  return p.epilogue == Epilogue::kSwiGlu ? 2 * p.n : p.n;
}

// ---- Measured plans ----

struct Measured {
  GemmClass products;
  GemmTile tile;  // fastest measured tile of the hand-written kernels
  int splits;
  bool plain_by_vendor;  // cuBLASLt is faster for GEMMs without GELU
  bool gelu_by_vendor;   // cuBLASLt is faster with GELU, despite its second pass over c
};

constexpr std::initializer_list<Measured> kMeasured = {
#include "shale/kernels/gemm_table.inc"
};

const Measured* measured(const GemmProblem& p) {
  const auto* row = std::find_if(kMeasured.begin(), kMeasured.end(),
                                 [&](const Measured& m) { return m.products == class_of(p); });
  return row == kMeasured.end() ? nullptr : row;
}

// ---- Time model ----

// Model of the multiprocessors of an H100. The unit of cost is the time of one multiply-add of a
// multiprocessor with portable tiles of 128x256.
struct Costs {
  double per_byte;    // cost of a byte of memory traffic; all multiprocessors share the bandwidth
  double per_launch;  // cost of a kernel launch, two microseconds
};
constexpr Costs kCosts16 = {.per_byte = 90, .per_launch = 4.5e6};
constexpr Costs kCostsF32 = {.per_byte = 9, .per_launch = 4.5e5};

// Cost of a block's first loads and its epilogue, as the number of k steps that take as long.
// kFilling is for portable tiles. Hopper tiles overlap the first loads with the previous tile;
// their numbers come from the machine code (docs/contributing/bounds.md). kPlainSteps is for
// results stored as they are or with a bias, kSumSteps for results to which another operand is
// added, kActivationSteps for an activation.
constexpr double kFilling = 192;
constexpr double kPlainSteps = 56, kSumSteps = 192, kActivationSteps = 448;

double filling(const GemmProblem& p, const TileTraits& tile) {
  if (!is_hopper(tile.tile)) return kFilling;
  if (p.epilogue != Epilogue::kNone && p.epilogue != Epilogue::kSwiGlu) return kActivationSteps;
  const bool is_changed = p.c.dtype == DType::kF32 || p.accumulate || p.residual.data != nullptr ||
                          p.bias_grad.data != nullptr;
  return is_changed || p.epilogue == Epilogue::kSwiGlu ? kSumSteps : kPlainSteps;
}

constexpr int kMaxSplits = 16;
constexpr int64_t kMinSplitK = 512;  // with smaller parts, loads and the reduction dominate
constexpr int64_t kMaxPartialBytes = int64_t{32} << 20;

double cost(const GemmProblem& p, const TileTraits& tile, int splits, int sms, int64_t groups = 1) {
  const bool is_f32 = p.a.dtype == DType::kF32;
  const Costs costs = is_f32 ? kCostsF32 : kCosts16;
  const int64_t blocks =
      ceil_div(p.m, tile.rows) * ceil_div(product_cols(p), tile.cols) * splits * groups;
  const double k = double(p.k) / splits, extra = filling(p, tile);
  // Two overlapping tiles take as long as both main loops, or as one main loop and its epilogue,
  // whichever is longer.
  const double steps = tile.overlaps ? std::max(2 * k, k + extra) / 2 : k + extra;
  const double rounds = double(ceil_div(blocks, sms));
  double total = double(tile.rows * tile.cols) * (rounds * steps + (tile.overlaps ? extra : 0)) /
                 (is_f32 ? tile.speed_f32 : tile.speed_16);
  if (splits > 1) {  // partial results are written once and read once
    const double bytes = 2.0 * sizeof(float) * double(p.m * p.n) * splits;
    total += costs.per_launch + bytes * costs.per_byte / double(sms);
  }
  return total;
}

constexpr double kCycle = 1282;

double cost_of_shares(const GemmProblem& p, const TileTraits& tile, int cluster, int64_t shares,
                      int sms) {
  const TileCounts tiles = tiles_of(p, tile.tile, cluster, sms);
  const double extra = filling(p, tile), k = double(p.k);
  const double steps = double(tiles.all / (sms / cluster)) * (k + extra) + extra +
                       k * double(tiles.shared) / double(shares);
  return double(tile.rows * tile.cols) * steps / tile.speed_16 +
         kCycle * sharing_cycles(tile.tile, tiles.shared, shares);
}

bool may_split(const GemmProblem& p, int splits) {
  return splits == 1 || (p.k / splits >= kMinSplitK &&
                         p.m * p.n * splits * int64_t{sizeof(float)} <= kMaxPartialBytes);
}

GemmPlan plan_of(const GemmProblem& p, GemmTile tile, int splits, int sms) {
  const int cluster = best_cluster(p, tile, sms);
  return {GemmEngine::kOwn, tile, splits, cluster, best_shares(p, tile, cluster, sms), sms};
}

GemmPlan modelled_own(const GemmProblem& p, const GemmMeans& means) {
  GemmPlan best;
  double least = std::numeric_limits<double>::infinity();
  for (const TileTraits& tile : kTiles) {
    if (!can_run(tile.tile, means)) continue;
    for (int splits = 1; splits <= kMaxSplits; ++splits) {
      if (!has_kernel(p, tile.tile, splits) || !may_split(p, splits)) continue;
      const GemmPlan plan = plan_of(p, tile.tile, splits, means.sms);
      const double total = plan.shares > 0
                               ? cost_of_shares(p, tile, plan.cluster, plan.shares, means.sms)
                               : cost(p, tile, splits, means.sms);
      if (total >= least) continue;
      least = total;
      best = plan;
    }
  }
  return best;
}

// The vendor library is faster at the GEMM itself on Hopper. With GELU it needs an extra pass that
// reads and writes m n elements: 8 bytes of traffic in bf16 for k multiply-adds.
bool modelled_vendor(const GemmProblem& p) {
  constexpr int64_t kEvenK = 1024;
  return !is_gelu(p.epilogue) || p.k >= kEvenK;
}

}  // namespace

int64_t rows_of(GemmTile tile) {
  return traits(tile).rows;
}
int64_t cols_of(GemmTile tile) {
  return traits(tile).cols;
}

bool is_hopper(GemmTile tile) {
  return tile >= GemmTile::kHopper128x64;
}
int cluster_blocks(GemmTile tile) {
  return is_hopper(tile) && traits(tile).cols >= 128 ? 2 : 1;
}

TileCounts tiles_of(const GemmProblem& p, GemmTile tile, int cluster, int sms) {
  const TileTraits& t = traits(tile);
  const int64_t all = ceil_div(p.m, t.rows * cluster) * ceil_div(product_cols(p), t.cols);
  return {.all = all, .shared = can_share(tile) ? all % (sms / cluster) : 0};
}

int best_cluster(const GemmProblem& p, GemmTile tile, int sms) {
  const int blocks = cluster_blocks(tile);
  if (blocks == 1 || p.m <= traits(tile).rows || sms < blocks) return 1;
  const int64_t rounds = ceil_div(tiles_of(p, tile, 1, sms).all, sms);
  const int64_t with_clusters = ceil_div(tiles_of(p, tile, blocks, sms).all, sms / blocks);
  return with_clusters > rounds ? 1 : blocks;
}

double sharing_cycles(GemmTile tile, int64_t tiles, int64_t shares) {
  // kCacheBytes: bytes per cycle to and from the L2 cache. kWaiting: cycles of waiting. Both are
  // guesses until they are measured.
  constexpr double kCacheBytes = 64, kWaiting = 1500;
  const bool in_tiles = shares % tiles == 0;  // true if no share spans two tiles
  const double parts = double(shares) / double(tiles) + (in_tiles ? 0 : 1);
  const double moving =
      double(rows_of(tile) * cols_of(tile) * int64_t{sizeof(float)}) / kCacheBytes;
  return (in_tiles ? 1 : 2) * (moving + kWaiting) + parts * moving;
}

bool can_share(GemmTile tile) {
  return is_hopper(tile) && !traits(tile).overlaps;
}

bool can_cut(const GemmProblem& p, int64_t tiles, int64_t shares) {
  const int64_t stages = tiles * ceil_div(p.k, kStageOfShares);
  return shares <= stages && stages * (shares + 1) <= std::numeric_limits<int>::max();
}

int best_shares(const GemmProblem& p, GemmTile tile, int cluster, int sms) {
  const int64_t tiles = tiles_of(p, tile, cluster, sms).shared, clusters = sms / cluster;
  if (tiles == 0) return 0;
  int64_t best = 0;
  double least = cost(p, traits(tile), 1, sms);
  const auto try_shares = [&](int64_t shares) {
    if (p.k * tiles / shares < kMinSplitK || !can_cut(p, tiles, shares)) return;
    const double total = cost_of_shares(p, traits(tile), cluster, shares, sms);
    if (total >= least) return;
    least = total;
    best = shares;
  };
  for (int64_t shares = 2 * tiles; shares <= clusters; shares += tiles) try_shares(shares);
  try_shares(clusters);
  return static_cast<int>(best);
}

GemmMeans gemm_means(const Device& device) {
  return {.hopper = device.arch == 90,
          .tcgen05 = device.arch >= 100 && device.arch < 120,
          .shared_bytes = gpu_model(device.arch).block_shared_bytes};
}
int sms_of(const Exec& exec) {
  if (exec.held == nullptr) return kNominalSms;
  const int total = exec.held->total() > 0 ? exec.held->total() : kNominalSms;
  return std::max(total - exec.held->planned(), total / 2);
}
GemmMeans gemm_means(const Exec& exec) {
  GemmMeans means = gemm_means(exec.device);
  means.sms = std::min(sms_of(exec), BlockCounters::kSlabs / 2);  // tiles have two slabs
  return means;
}
bool can_run(GemmTile tile, const GemmMeans& means) {
  return is_hopper(tile) ? means.hopper : shared_bytes_of(tile) <= means.shared_bytes;
}
const char* name_of(GemmTile tile) {
  return traits(tile).name;
}

bool has_kernel(const GemmProblem& p, GemmTile tile, int splits) {
  if (splits < 1) return false;
  if (p.epilogue == Epilogue::kSwiGlu && (splits > 1 || tile == GemmTile::kHopper128x64)) {
    return false;
  }
  if (is_hopper(tile) && (p.k == 0 || splits > 1)) return false;  // TMA has no empty boxes
  if (p.a.transposed && p.b.transposed) return tile == GemmTile::k64x64;
  return (p.a.dtype == DType::kF32 ? traits(tile).speed_f32 : traits(tile).speed_16) > 0;
}

GemmTile grouped_gemm_tile(const GemmProblem& group, int64_t groups, const GemmMeans& means) {
  GemmTile best = GemmTile::k64x64;
  double least = std::numeric_limits<double>::infinity();
  for (const GemmTile tile :
       {GemmTile::k64x64, GemmTile::k128x128, GemmTile::kHopper128x128, GemmTile::kHopper128x256}) {
    if (!can_run(tile, means) || !has_kernel(group, tile)) continue;
    const double total = cost(group, traits(tile), 1, means.sms, groups);
    if (total >= least) continue;
    least = total;
    best = tile;
  }
  return best;
}

GemmClass class_of(const GemmProblem& p) {
  const auto bits = [](int64_t size) { return std::bit_width(static_cast<uint64_t>(size)); };
  return {.in = p.a.dtype,
          .a_transposed = p.a.transposed,
          .b_transposed = p.b.transposed,
          .m_bits = static_cast<int>(bits(p.m)),
          .n_bits = static_cast<int>(bits(product_cols(p))),
          .k_bits = static_cast<int>(bits(p.k))};
}

GemmPlan gemm_plan(const GemmProblem& p, const GemmMeans& means) {
  const Measured* row = measured(p);
  // The backward epilogues need the GEMM's result in f32, which the library would have to write to
  // memory. For SwiGLU the library needs two calls and a pass over three matrices, which its faster
  // instructions make up for.
  const bool possible = means.vendor && (p.epilogue == Epilogue::kNone || is_gelu(p.epilogue) ||
                                         (p.epilogue == Epilogue::kSwiGlu && means.tcgen05));
  const bool faster = row == nullptr        ? modelled_vendor(p)
                      : is_gelu(p.epilogue) ? row->gelu_by_vendor
                                            : row->plain_by_vendor;
  const bool usable =
      row != nullptr && has_kernel(p, row->tile, row->splits) && can_run(row->tile, means);
  GemmPlan plan = usable ? plan_of(p, row->tile, row->splits, means.sms) : modelled_own(p, means);
  if (possible && faster) plan.engine = GemmEngine::kVendor;
  return plan;
}

}  // namespace shale::kernels
