#pragma once

// Copies from global to shared memory that go on while the thread does (sm_80).
//
//   cp_async<kBytes>(to, from, valid = true)  4, 8 or 16 bytes, both addresses multiples of that;
//                                             zeros, and nothing read, when not valid
//   cp_async_part<kBytes>(to, from, bytes)    the same, but reads the first `bytes` only (0 to
//                                             kBytes) and writes zeros behind them
//   cp_async_commit()                         what was issued since the last commit becomes a group
//   cp_async_wait<n>()                        until at most the n newest groups are under way
//
// After the wait the thread itself may read; the others after a barrier.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/cp_async.h"
#else
#include "shale/kernels/simt/emu/cp_async.h"
#endif
