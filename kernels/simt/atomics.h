#pragma once

// Relaxed atomic operations on global or shared memory: they order no other accesses (use
// __threadfence). Each returns the old value.
//
//   atomic_add(p, value)            float, int32_t, uint32_t, uint64_t
//   atomic_max(p, value)            int32_t, uint32_t
//   atomic_cas(p, expected, value)  uint32_t, uint64_t: writes value if *p equals expected
//   atomic_exchange(p, value)       uint32_t
//   atomic_increment(p, last)       uint32_t: adds 1, or writes 0 if the value is `last` or more

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/atomics.h"
#else
#include "shale/kernels/simt/emu/atomics.h"
#endif
