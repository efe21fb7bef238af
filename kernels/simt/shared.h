#pragma once

// Shared memory and named barriers.
//
//   shared<T>()            The static object of type T: one per block and type, so a kernel gives
//   its
//                          shared data a struct of its own. T is any type that needs no destructor;
//                          its contents are undefined at first.
//   dynamic_shared<T>()    The launch's smem_bytes as T*, aligned to 1024.
//   shared_address(p)      p as the 32-bit address that PTX takes.
//   barrier_sync(id, n)    Waits until n threads, whole warps, have come to barrier id (1 to 15)
//   ... barrier_arrive(id, n)  ... of which this one does not wait.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/shared.h"
#else
#include "shale/kernels/simt/emu/shared.h"
#endif
