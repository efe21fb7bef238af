#pragma once

#include "shale/kernels/cuda/ring.cuh"
#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// How blocks that do one tile after the other share tiles 0 to `tiles` - 1. The first of a block is
// that of its own number. The next ones are taken in order by whoever is free, so that a block
// which came late, because a collective held its multiprocessor, holds up nobody. Which block does
// a tile changes no result.
//
// `counter` is in device memory, 0 between kernels: StepState::next_tile. All blocks together ask
// it `tiles` times, for each tile but the blocks' first and once in vain for each block; the last
// of these puts it back to 0. So nobody has to clear it between launches, which may be dependent
// ones or those of a graph. Without a counter a block takes every gridDim.x-th tile.
__device__ __forceinline__ int first_tile() {
  return static_cast<int>(blockIdx.x);
}
// Asks for the tile after `tile`. What is issued before tile_of() is not held up by the answer,
// which takes as long as a load: opaque() keeps the compiler from using it sooner.
__device__ __forceinline__ int ask_for_tile(int tile, int tiles, uint32_t* counter) {
  if (counter == nullptr || tiles <= static_cast<int>(gridDim.x)) return tile;
  return static_cast<int>(atomic_increment(counter, static_cast<uint32_t>(tiles - 1)));
}
__device__ __forceinline__ int tile_of(int answer) {
  return opaque(answer) + static_cast<int>(gridDim.x);
}

// The numbers of a block's tiles in shared memory, on their way from the thread that takes them to
// the warps that work on them. All of these read every number; the last is no tile's.
struct TileQueue {
  static constexpr int kPlaces = 2;
  MBarrier given[kPlaces], read[kPlaces];
  int tiles[kPlaces];

  // By one thread, before fence_mbarrier_init().
  __device__ __forceinline__ void init(int readers) {
    for (int i = 0; i < kPlaces; ++i) {
      mbarrier_init(given[i], 1);
      mbarrier_init(read[i], readers);
    }
  }
};

class TileGiver {
 public:
  explicit __device__ __forceinline__ TileGiver(TileQueue& queue) : queue_(queue) {}
  // Returns when there is room for another number.
  __device__ __forceinline__ void wait() {
    mbarrier_wait(queue_.read[place_.stage], place_.parity ^ 1);
  }
  __device__ __forceinline__ void give(int tile) {
    wait();
    queue_.tiles[place_.stage] = tile;
    mbarrier_arrive(queue_.given[place_.stage]);
    place_.next();
  }

 private:
  TileQueue& queue_;
  RingPlace<TileQueue::kPlaces> place_;
};

// By whole warps: wait(), then tile(), then release(), and so on; next() is all three. Where it
// stands is one number, and tile() may be asked again, as registers of who multiplies are short.
class TileReader {
 public:
  explicit __device__ __forceinline__ TileReader(TileQueue& queue) : queue_(queue) {}
  __device__ __forceinline__ void wait() {
    mbarrier_wait(queue_.given[place()], read_ / TileQueue::kPlaces % 2);
  }
  __device__ __forceinline__ int tile() const { return uniform(queue_.tiles[place()]); }
  __device__ __forceinline__ void release() {
    __syncwarp();  // or the place might be given again before all lanes have seen this time
    if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(queue_.read[place()]);
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
