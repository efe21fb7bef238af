#pragma once

// Shared memory and named barriers.
//
//   shared<T>()             The static object of type T, one per block and type. A kernel defines a
//                           struct for its shared data. T must not need a destructor; the contents
//                           are undefined at first.
//   dynamic_shared<T>()     The launch's smem_bytes as T*, aligned to 1024.
//   shared_address(p)       p as the 32-bit address that PTX takes.
//   barrier_sync(id, n)     Waits until n threads (whole warps) have reached barrier id (1 to 15).
//   barrier_arrive(id, n)   Counts at barrier id like barrier_sync(), but does not wait.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/shared.h"
#else
#include "shale/kernels/simt/emu/shared.h"
#endif
