#pragma once

#include "shale/kernels/cuda/gemm/gemm90_config.cuh"

namespace shale::kernels::SHALE_BACKEND {

// Tiles shared by several blocks (stream-K, GemmPlan::shares): the parts of tiles that a block
// computes, and how the parts are added. No block waits for another one. Each writes its part of a
// tile to memory; the last one to finish adds all parts in order, and stores the tile to c.

// Divides the stages of all shared tiles, tile after tile, into shares. The numbers fit 32 bits, as
// can_cut() checks.
struct ShareCut {
  int stages;  // stages per tile
  int all, shares;

  template <class Config>
  static __device__ __forceinline__ ShareCut of(const Gemm90Params& params) {
    const int stages = (static_cast<int>(params.problem.k) + Config::kDepth - 1) / Config::kDepth;
    return {stages, stages * params.work.shares.tiles, params.work.shares.count};
  }
  __device__ __forceinline__ int begin(int share) const { return share * all / shares; }
  __device__ __forceinline__ int share_with(int stage) const {
    return ((stage + 1) * shares - 1) / all;
  }
};

// Iterates over the pieces of an item: a whole tile, or the parts of consecutive tiles that belong
// to a share.
template <class Config, class Params>
class ItemPieces {
  static constexpr bool kShares = Params::kShares && !Config::kPingPong;

 public:
  __device__ __forceinline__ ItemPieces(const Params& params, int number)
      : params_(params), share_(number), tile_(number) {
    if constexpr (kShares) {
      const auto cut = ShareCut::of<Config>(params);
      const int whole = params.items - cut.shares;
      share_ = number - whole;
      left_ = cut.stages;
      if (share_ < 0) return;
      const int begin = cut.begin(share_);
      left_ = cut.begin(share_ + 1) - begin;
      tile_ = whole + begin / cut.stages;
      stage_ = begin % cut.stages;
    }
  }
  __device__ __forceinline__ Gemm90Item piece() const {
    Gemm90Item item = gemm90_item<Config>(params_, tile_);
    if constexpr (kShares) {
      const int after = stage_ + left_, k_end = after * Config::kDepth;
      item.k_begin = stage_ * Config::kDepth;
      if (k_end < item.k_end) item.k_end = k_end;
      item.share = share_;
      item.tile = tile_;
    }
    return item;
  }
  // Goes to the next piece; returns false if there is none.
  __device__ __forceinline__ bool next() {
    if constexpr (kShares) {
      left_ -= ShareCut::of<Config>(params_).stages - stage_;
      stage_ = 0;
      ++tile_;
      return left_ > 0;
    } else {
      return false;
    }
  }

 private:
  const Params& params_;
  int share_, tile_, stage_ = 0, left_ = 0;
};

// Partial sums of a warpgroup's rows of a tile, in memory: 16 bytes of each thread in turn, so that
// neighbouring threads access neighbouring bytes. A share is a thread block's part of all k steps
// of the stream-K GEMM. It has memory for each tile of which it computes a part.
template <int kCols>
class PartSums {
  static constexpr int kSums = kCols / 2;  // sums per thread
  static constexpr int kFloats = 4;

 public:
  __device__ __forceinline__ PartSums(const Gemm90Params& params, int tile, int warpgroup)
      : shares_(params.work.shares),
        tile_(tile),
        slab_((cluster_rank() * 2) + warpgroup),
        slabs_(params.cluster * 2) {}

  __device__ __forceinline__ void write(int share, const float (&sums)[kSums]) const {
    float* const to = at(share);
#pragma unroll
    for (int i = 0; i < kSums; i += kFloats) {
      store_floats(to + i * kWarpgroupSize,
                   Floats<kFloats>{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
    }
  }
  // Called by one thread after all threads have written the warpgroup's part. Returns whether the
  // `others` other parts of the tile were already written.
  __device__ __forceinline__ bool is_last(int others) const {
    __threadfence();
    uint32_t* const counter = shares_.written + tile_ * slabs_ + slab_;
    const uint32_t before = atomic_increment(counter, static_cast<uint32_t>(others));
    __threadfence();
    return before == static_cast<uint32_t>(others);
  }
  __device__ __forceinline__ void add_up(int first, int last, float (&sums)[kSums]) const {
    read(
        first, [&](float& sum, float part) { sum = part; }, sums);
#pragma unroll 1
    for (int share = first + 1; share <= last; ++share) {
      read(
          share, [&](float& sum, float part) { sum += part; }, sums);
    }
  }

 private:
  __device__ __forceinline__ float* at(int share) const {
    // computed in 32 bits, because 64-bit operands would spill registers
    const int64_t place = (share + tile_) * slabs_ + slab_;
    return shares_.parts + place * (kSums * kWarpgroupSize) +
           static_cast<int>(threadIdx.x) % kWarpgroupSize * kFloats;
  }
  template <class Add>
  __device__ __forceinline__ void read(int share, const Add& add, float (&sums)[kSums]) const {
    const float* const from = at(share);
#pragma unroll
    for (int i = 0; i < kSums; i += kFloats) {
      const auto part = load_floats<kFloats>(from + i * kWarpgroupSize);
#pragma unroll
      for (int e = 0; e < kFloats; ++e) add(sums[i + e], part.at[e]);
    }
  }

  const TileShares& shares_;
  int tile_, slab_, slabs_;
};

// Returns whether this block stores the tile; if so, `sums` covers the whole k of the tile. For a
// shared tile, the result is true in one block only.
template <class Config, class Params, class Barriers, int kSums>
__device__ __forceinline__ bool join_parts(const Params& params, const Gemm90Item& item,
                                           int warpgroup, Barriers& barriers,
                                           float (&sums)[kSums]) {
  if constexpr (Params::kShares) {
    if (item.share < 0) return true;
    const auto cut = ShareCut::of<Config>(params);
    const int tile = item.tile - (params.items - cut.shares);
    const int first = cut.share_with(tile * cut.stages);
    const int last = cut.share_with(tile * cut.stages + cut.stages - 1);
    if (first == last) return true;
    const PartSums<2 * kSums> parts(params, tile, warpgroup);
    parts.write(item.share, sums);
    barrier_sync(1 + warpgroup, kWarpgroupSize);
    if (threadIdx.x % kWarpgroupSize == 0) {
      barriers.all_written[warpgroup] = static_cast<uint32_t>(parts.is_last(last - first));
    }
    barrier_sync(1 + warpgroup, kWarpgroupSize);
    if (barriers.all_written[warpgroup] == 0) return false;
    parts.add_up(first, last, sums);
  }
  return true;
}

// ---- Host side ----

// Sets the number of items: unshared tiles, and shares of the shared tiles.
inline void set_items(Gemm90Params& params) {
  const TileShares& shares = params.work.shares;
  params.items = params.row_tiles * params.col_tiles - shares.tiles + shares.count;
}

}  // namespace shale::kernels::SHALE_BACKEND
