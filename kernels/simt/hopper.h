#pragma once

// What a kernel for Hopper (compute capability 9.0 alone: sm_90a) includes besides simt.h. Such
// kernels have 90 in their files' names, as gemm90_bf16.cu: no other GPU has these instructions.
//
//   mbarrier.h     barriers in shared memory that count threads and bytes
//   tensor_map.h   how an array in device memory is divided into boxes
//   tma.h          the bulk copy engine: boxes and runs of bytes, in both directions
//   cluster.h      blocks that reach each other's shared memory
//   wgmma.h        products by a warpgroup, asynchronous, out of shared memory; its registers
//
// Shared memory has two ways in here. Threads go the ordinary one; the copy engine and wgmma go the
// "async proxy". What a thread wrote may be read by those only after the thread's own
// fence_proxy_async() and then a barrier; what the copy engine wrote and an mbarrier reported needs
// no fence.

#include "shale/kernels/simt/cluster.h"
#include "shale/kernels/simt/mbarrier.h"
#include "shale/kernels/simt/simt.h"
#include "shale/kernels/simt/tensor_map.h"
#include "shale/kernels/simt/tma.h"
#include "shale/kernels/simt/wgmma.h"

namespace shale::kernels::SHALE_BACKEND {
using namespace simt;
}
