#pragma once

// Asynchronous copies from global to shared memory (sm_80).
//
//   cp_async<kBytes>(to, from, valid = true)  copies 4, 8 or 16 bytes, aligned to kBytes;
//                                             if not valid, writes zeros and reads nothing
//   cp_async_part<kBytes>(to, from, bytes)    the same, but reads only the first `bytes` (0 to
//                                             kBytes) and writes zeros after them
//   cp_async_commit()                         makes a group of the copies since the last commit
//   cp_async_wait<n>()                        waits until at most the n newest groups are in flight
//
// After the wait the thread itself may read the data; other threads only after a barrier.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/cp_async.h"
#else
#include "shale/kernels/simt/emu/cp_async.h"
#endif
