#pragma once

// Barriers in shared memory that count threads and bytes of bulk copies (PTX ISA, "mbarrier"). A
// barrier has phases, numbered from 0. A phase is complete when `count` arrivals have come and all
// expected bytes have landed. Then the next phase begins.
//
//   MBarrier                             its 8 bytes, anywhere in shared memory
//   mbarrier_init(barrier, count)        called by one thread
//   fence_mbarrier_init()                called by that thread after its inits; then __syncthreads
//   mbarrier_arrive(barrier)             one arrival; a thread that waits sees this thread's writes
//   mbarrier_arrive_expect(barrier, n)   the same, and n more bytes are expected in this phase
//   mbarrier_wait(barrier, parity)       waits until the phase with this parity (lowest bit of its
//                                        number) is complete; a thread must not be two phases
//                                        behind
//   fence_proxy_async()                  bulk copies and wgmma may read this thread's writes to
//                                        shared memory after the next barrier; see hopper.h
//
// wait(parity 1) on a new barrier returns immediately: the phase "before the first" counts as
// complete. So a ring of stages works as follows, where n counts the uses of a stage from 0:
//
//   producer   wait(empty, n % 2 ^ 1)  arrive_expect(full, bytes)  copy into the stage
//   consumer   wait(full, n % 2)       use the stage               arrive(empty)

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/mbarrier.h"
#else
#include "shale/kernels/simt/emu/mbarrier.h"
#endif
