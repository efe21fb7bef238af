#pragma once

#include "shale/base/exec.h"
#include "shale/base/gpu_model.h"
#include "shale/base/reserved_sms.h"

namespace shale::kernels {

// Number of multiprocessors of the GPU that stands for a compute capability. Grids of this size
// fill that GPU and suit other GPUs. Results may depend on this number, so it must not depend on
// the individual GPU.
inline int64_t multiprocessors(const Exec& exec) {
  return gpu_model(exec.device.arch).multiprocessors;
}

// Number of blocks of a persistent kernel for `tiles` tiles: one per multiprocessor, except those
// that are reserved for collectives. With `cluster` > 1, `tiles` are tiles of clusters, and only
// whole clusters count.
inline int64_t persistent_blocks(const Exec& exec, int64_t tiles, int cluster = 1) {
  const int64_t held = exec.held != nullptr ? exec.held->most() : 0;
  int64_t all = exec.held != nullptr ? exec.held->total() : 0;
  if (all == 0) all = multiprocessors(exec);
  if (exec.persistent_blocks > 0) all = exec.persistent_blocks;
  const int64_t clusters = (all - held) / cluster;
  const int64_t most = clusters > 1 ? clusters : 1;
  return (tiles < most ? tiles : most) * cluster;
}

// Returns the counter from which the blocks of persistent kernels take their tiles, see
// tile_queue.cuh.
inline uint32_t* tile_counter(const Exec& exec) {
  return exec.counters == nullptr ? nullptr : &exec.counters->next_tile;
}

}  // namespace shale::kernels
