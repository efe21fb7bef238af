#pragma once

#include <cstdint>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

// Relaxed atomic operations on global or shared memory, as in CUDA: they order no other accesses.
// Each returns the old value, and lets the block's other threads run, so that polling loops make
// progress.
float atomic_add(float* p, float value, Site site);
int32_t atomic_add(int32_t* p, int32_t value, Site site);
uint32_t atomic_add(uint32_t* p, uint32_t value, Site site);
uint64_t atomic_add(uint64_t* p, uint64_t value, Site site);
int32_t atomic_max(int32_t* p, int32_t value, Site site);
uint32_t atomic_max(uint32_t* p, uint32_t value, Site site);
uint32_t atomic_cas(uint32_t* p, uint32_t expected, uint32_t value, Site site);
uint64_t atomic_cas(uint64_t* p, uint64_t expected, uint64_t value, Site site);
uint32_t atomic_exchange(uint32_t* p, uint32_t value, Site site);
uint32_t atomic_increment(uint32_t* p, uint32_t last, Site site);

// Implements __threadfence(). Blocks run on different OS threads, and host memory serves as the
// GPU's global memory. Fences and atomic operations together order blocks (block_order.h).
void thread_fence();

}  // namespace shale::emulator
