#pragma once

#include "shale/base/exec.h"
#include "shale/base/gpu_model.h"
#include "shale/base/held_multiprocessors.h"

namespace shale::kernels {

// Multiprocessors of the GPUs that a compute capability is known for. A grid that is cut by it
// fills them; others it serves well enough. Results may depend on it, so it is no property of the
// single device.
inline int64_t multiprocessors(const Exec& exec) {
  return gpu_model(exec.device.arch).multiprocessors;
}

// Blocks of a kernel that do `tiles` tiles, each block one after the other: as many as there are
// multiprocessors, less those that collectives hold. Where `cluster` blocks form a cluster, these
// have tiles together, and are all whole.
inline int64_t persistent_blocks(const Exec& exec, int64_t tiles, int cluster = 1) {
  const int64_t all = exec.persistent_blocks > 0 ? exec.persistent_blocks : multiprocessors(exec);
  const int64_t held = exec.held != nullptr ? exec.held->most() : 0;
  const int64_t clusters = (all - held) / cluster;
  const int64_t most = clusters > 1 ? clusters : 1;
  return (tiles < most ? tiles : most) * cluster;
}

// What those blocks take their tiles by, see tile_queue.cuh.
inline uint32_t* tile_counter(const Exec& exec) {
  return exec.counters == nullptr ? nullptr : &exec.counters->next_tile;
}

}  // namespace shale::kernels
