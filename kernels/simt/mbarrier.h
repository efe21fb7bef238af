#pragma once

// Barriers in shared memory that wait for threads and for bytes of bulk copies (PTX ISA,
// "mbarrier"). One goes through phases, numbered from 0: a phase is complete when `count` arrivals
// have come and as many bytes have landed as were expected. Then the next one begins.
//
//   MBarrier                             its 8 bytes, anywhere in shared memory
//   mbarrier_init(barrier, count)        by one thread
//   fence_mbarrier_init()                by that thread, after its inits; then __syncthreads
//   mbarrier_arrive(barrier)             one arrival: who waits sees what this thread did before
//   mbarrier_arrive_expect(barrier, n)   the same, and n more bytes are to come in this phase
//   mbarrier_wait(barrier, parity)       until the phase of that parity, its number's lowest bit,
//                                        is complete; nobody may be two phases behind
//   fence_proxy_async()                  what this thread wrote to shared memory may be read, after
//                                        the next barrier, by bulk copies and wgmma; see hopper.h
//
// wait(parity 1) of a fresh barrier returns at once: the phase "before the first" counts as
// complete. A ring of stages therefore goes, with n counting a stage's turns from 0:
//
//   producer   wait(empty, n % 2 ^ 1)  arrive_expect(full, bytes)  copy into the stage
//   consumer   wait(full, n % 2)       use the stage               arrive(empty)

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/mbarrier.h"
#else
#include "shale/kernels/simt/emu/mbarrier.h"
#endif
