#pragma once

// The bulk copy engine (PTX ISA, "cp.async.bulk"). One thread issues a copy, and the engine makes
// it while the threads do something else. Coordinates count elements from the array's start,
// innermost first, as many as the map has dimensions; they may lie outside, also below 0.
//
// To shared memory: mbarrier `full` counts the bytes as they land, always those of the whole box.
//
//   tma_load(to, map, full, x, y...)           a box; `to` is a multiple of 128, of 1024 with
//                                              swizzle
//   bulk_load(to, from, bytes, full)           a run of bytes; all three are multiples of 16
//   prefetch_tensor_map(map)                   so that the first copy need not wait for it; of maps
//                                              that were made only
//
// To device memory: copies form groups, of the thread that issues them. What is copied was written
// by threads that executed fence_proxy_async() before the barrier which this thread came from.
//
//   tma_store(map, from, x, y...)              a box, what of it is inside the array
//   bulk_store(to, from, bytes)                a run of bytes; all three are multiples of 16
//   bulk_add(to, from, bytes)                  adds f32 to f32, atomically, element by element
//   bulk_commit()                              what was issued since the last commit is a group
//   bulk_wait_read<n>()                        until all but the n newest groups have been read:
//                                              their shared memory may be written again
//   bulk_wait<n>()                             ... until they have arrived
//
// A thread that ends has waited for its groups to be read at least.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/tma.h"
#else
#include "shale/kernels/simt/emu/tma.h"
#endif
