#pragma once

#include "shale/kernels/cuda/ring.cuh"
#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// How persistent blocks share tiles 0 to `tiles` - 1. The first tile of a block has the block's
// number. Further tiles go in order to the next free block, so a block that starts late, because a
// collective occupied its multiprocessor, delays no other block. Results do not depend on which
// block computes a tile. With clusters, tiles are assigned to clusters, and `cluster` is the number
// of blocks in a cluster.
//
// `counter` is BlockCounters::next_tile. A block increments it to get each tile after its first
// one, and once more when no tile is left. All blocks together make `tiles` increments, and the
// last one wraps the counter to 0. Without a counter a block takes every gridDim.x-th tile.
__device__ __forceinline__ int first_tile(int cluster = 1) {
  return static_cast<int>(blockIdx.x) / cluster;
}
// Requests the tile after `tile`. The request takes as long as a load; instructions issued before
// tile_of() do not wait for it, because opaque() keeps the compiler from using the answer earlier.
__device__ __forceinline__ int ask_for_tile(int tile, int tiles, uint32_t* counter,
                                            int cluster = 1) {
  if (counter == nullptr || tiles <= static_cast<int>(gridDim.x) / cluster) return tile;
  return static_cast<int>(atomic_increment(counter, static_cast<uint32_t>(tiles - 1)));
}
__device__ __forceinline__ int tile_of(int answer, int cluster = 1) {
  return opaque(answer) + static_cast<int>(gridDim.x) / cluster;
}

// Passes tile numbers in shared memory from the thread that takes them to the warps that work on
// them. All warps read every number; the last number is beyond the tiles. The first block of a
// cluster takes tiles for the whole cluster, and its barrier `read` counts the readers of all
// blocks.
struct TileQueue {
  static constexpr int kPlaces = 2;
  MBarrier given[kPlaces], read[kPlaces];
  uint32_t tiles[kPlaces];

  // Initialises the barriers; called by one thread, before fence_mbarrier_init(). In the other
  // blocks of a cluster, the thread that would take tiles is also a reader.
  __device__ __forceinline__ void init(int readers, int cluster = 1) {
    for (int i = 0; i < kPlaces; ++i) {
      mbarrier_init(given[i], 1);
      mbarrier_init(read[i], readers * cluster + cluster - 1);
    }
  }
};

class TileGiver {
 public:
  explicit __device__ __forceinline__ TileGiver(TileQueue& queue, int cluster = 1)
      : queue_(queue), cluster_(cluster) {}
  // Waits until the queue has room for another number.
  __device__ __forceinline__ void wait() {
    mbarrier_wait(queue_.read[place_.stage], place_.parity ^ 1);
  }
  // Sends a number to all blocks; called in the first block of a cluster.
  __device__ __forceinline__ void give(int tile) {
    wait();
    uint32_t& to = queue_.tiles[place_.stage];
    MBarrier& given = queue_.given[place_.stage];
    if (cluster_ == 1) {
      to = static_cast<uint32_t>(tile);
      mbarrier_arrive(given);
    } else {
      mbarrier_arrive_expect(given, sizeof(to));
      for (int rank = 0; rank < cluster_; ++rank) {
        send_word(to, static_cast<uint32_t>(tile), given, rank);
      }
    }
    place_.next();
  }
  // Receives the next number from the first block; called in the other blocks of a cluster.
  __device__ __forceinline__ int follow() {
    MBarrier& given = queue_.given[place_.stage];
    mbarrier_arrive_expect(given, sizeof(queue_.tiles[0]));
    mbarrier_wait(given, place_.parity);
    const auto tile = static_cast<int>(queue_.tiles[place_.stage]);
    mbarrier_arrive_at(queue_.read[place_.stage], 0);
    place_.next();
    return tile;
  }

 private:
  TileQueue& queue_;
  int cluster_;
  RingPlace<TileQueue::kPlaces> place_;
};

// Reads tile numbers from the queue. Whole warps call wait(), tile() and release(), in this order;
// next() calls all three. The reader keeps only one number, and tile() may be called repeatedly,
// because the warps that multiply are short of registers. kClusters: blocks may form clusters.
template <bool kClusters = false>
class TileReader {
 public:
  explicit __device__ __forceinline__ TileReader(TileQueue& queue) : queue_(queue) {}
  __device__ __forceinline__ void wait() {
    mbarrier_wait(queue_.given[place()], read_ / TileQueue::kPlaces % 2);
  }
  __device__ __forceinline__ int tile() const {
    return uniform(static_cast<int>(queue_.tiles[place()]));
  }
  __device__ __forceinline__ void release() {
    __syncwarp();  // the entry must not be reused before all lanes have read it
    if (threadIdx.x % kWarpSize == 0) {
      if constexpr (kClusters) {
        mbarrier_arrive_at(queue_.read[place()], 0);
      } else {
        mbarrier_arrive(queue_.read[place()]);
      }
    }
    ++read_;
  }
  // Returns the number of released tiles modulo 2: the parity of a barrier that each tile uses
  // once.
  __device__ __forceinline__ int parity() const { return read_ % 2; }
  __device__ __forceinline__ int next() {
    wait();
    const int tile = this->tile();
    release();
    return tile;
  }

 private:
  __device__ __forceinline__ int place() const { return read_ % TileQueue::kPlaces; }

  TileQueue& queue_;
  int read_ = 0;
};

}  // namespace shale::kernels::SHALE_BACKEND
