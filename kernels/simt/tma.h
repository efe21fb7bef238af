#pragma once

// TMA, the bulk copy engine (PTX ISA, "cp.async.bulk"). One thread issues a copy, which runs
// asynchronously. Coordinates count elements from the array's start, innermost first, one per
// dimension of the map. They may be outside of the array, also negative.
//
// To shared memory: mbarrier `full` counts the bytes that land, always those of the whole box.
//
//   tma_load(to, map, full, x, y...)           a box; `to` is a multiple of 128, of 1024 with
//                                              swizzle
//   bulk_load(to, from, bytes, full)           a run of bytes; all three are multiples of 16
//   prefetch_tensor_map(map)                   hides the latency of the first copy's map; only for
//                                              maps that were made
//
// To device memory: copies form groups, per issuing thread. The threads that wrote the source must
// have executed fence_proxy_async() before a barrier, and the issuing thread must have passed that
// barrier.
//
//   tma_store(map, from, x, y...)              a box, clipped to the array
//   bulk_store(to, from, bytes)                a run of bytes; all three are multiples of 16
//   bulk_add(to, from, bytes)                  adds f32 to f32, atomically, element by element
//   bulk_commit()                              makes a group of the copies since the last commit
//   bulk_wait_read<n>()                        waits until all but the n newest groups have been
//                                              read: their shared memory may be overwritten
//   bulk_wait<n>()                             waits until they have arrived
//
// Before a thread ends, it must at least wait until its groups have been read.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/tma.h"
#else
#include "shale/kernels/simt/emu/tma.h"
#endif
