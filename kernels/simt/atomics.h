#pragma once

// Atomic operations on global or shared memory, relaxed: they order nothing else (__threadfence
// does). Each returns the value before.
//
//   atomic_add(p, value)            float, int32_t, uint32_t, uint64_t
//   atomic_max(p, value)            int32_t, uint32_t
//   atomic_cas(p, expected, value)  uint32_t, uint64_t: writes value if *p is expected
//   atomic_exchange(p, value)       uint32_t
//   atomic_increment(p, last)       uint32_t: adds 1; from `last` on writes 0

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/atomics.h"
#else
#include "shale/kernels/simt/emu/atomics.h"
#endif
