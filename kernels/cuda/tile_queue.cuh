#pragma once

#include "shale/kernels/cuda/ring.cuh"
#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// How blocks that do one tile after the other share tiles 0 to `tiles` - 1. The first of a block is
// that of its own number. The next ones are taken in order by whoever is free, so that a block
// which came late, because a collective held its multiprocessor, holds up nobody. Which block does
// a tile changes no result. Where blocks form clusters, these take tiles, and `cluster` is how many
// blocks one has.
//
// `counter` is BlockCounters::next_tile. All blocks together ask it `tiles` times, for each tile but
// the blocks' first and once in vain for each block; the last of these puts it back to 0. Without a
// counter a block takes every gridDim.x-th tile.
__device__ __forceinline__ int first_tile(int cluster = 1) {
  return static_cast<int>(blockIdx.x) / cluster;
}
// Asks for the tile after `tile`. What is issued before tile_of() is not held up by the answer,
// which takes as long as a load: opaque() keeps the compiler from using it sooner.
__device__ __forceinline__ int ask_for_tile(int tile, int tiles, uint32_t* counter,
                                            int cluster = 1) {
  if (counter == nullptr || tiles <= static_cast<int>(gridDim.x) / cluster) return tile;
  return static_cast<int>(atomic_increment(counter, static_cast<uint32_t>(tiles - 1)));
}
__device__ __forceinline__ int tile_of(int answer, int cluster = 1) {
  return opaque(answer) + static_cast<int>(gridDim.x) / cluster;
}

// The numbers of a block's tiles in shared memory, on their way from the thread that takes them to
// the warps that work on them. All of these read every number; the last is no tile's. A cluster's
// first block takes them for all, and `read` there counts the readers of all.
struct TileQueue {
  static constexpr int kPlaces = 2;
  MBarrier given[kPlaces], read[kPlaces];
  uint32_t tiles[kPlaces];

  // By one thread, before fence_mbarrier_init(). In other blocks than the first, the thread that
  // would take tiles is a reader too.
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
  // Returns when there is room for another number.
  __device__ __forceinline__ void wait() {
    mbarrier_wait(queue_.read[place_.stage], place_.parity ^ 1);
  }
  // In a cluster's first block.
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
  // What the first block gives, in another one.
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

// By whole warps: wait(), then tile(), then release(), and so on; next() is all three. Where it
// stands is one number, and tile() may be asked again, as registers of who multiplies are short.
// kClusters: whether blocks may form any.
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
    __syncwarp();  // or the place might be given again before all lanes have seen this time
    if (threadIdx.x % kWarpSize == 0) {
      if constexpr (kClusters) {
        mbarrier_arrive_at(queue_.read[place()], 0);
      } else {
        mbarrier_arrive(queue_.read[place()]);
      }
    }
    ++read_;
  }
  // How many have been released, modulo 2: the parity of a barrier that each tile takes once.
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
