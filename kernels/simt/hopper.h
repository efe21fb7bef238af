#pragma once

// Includes for kernels that only run on Hopper (compute capability 9.0, sm_90a), besides simt.h.
// Such kernels have 90 in their file names, as gemm90_bf16.cu: no other GPU has these instructions.
//
//   mbarrier.h     barriers in shared memory that count threads and bytes
//   tensor_map.h   how an array in device memory is divided into boxes
//   tma.h          TMA: copies of boxes and runs of bytes, in both directions
//   cluster.h      blocks that access each other's shared memory
//   wgmma.h        asynchronous matmuls by a warpgroup from shared memory, and its registers
//
// Threads access shared memory directly; TMA and wgmma access it through the "async proxy". TMA and
// wgmma may read what a thread wrote only after the thread's own fence_proxy_async() and then a
// barrier. What TMA wrote and an mbarrier reported needs no fence.

#include "shale/kernels/simt/cluster.h"
#include "shale/kernels/simt/mbarrier.h"
#include "shale/kernels/simt/simt.h"
#include "shale/kernels/simt/tensor_map.h"
#include "shale/kernels/simt/tma.h"
#include "shale/kernels/simt/wgmma.h"

namespace shale::kernels::SHALE_BACKEND {
using namespace simt;
}
