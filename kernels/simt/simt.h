#pragma once

// The only device header that a kernel includes. A kernel file is compiled twice: by nvcc, and by
// the host compiler for the emulator, which runs the same source on the CPU and checks it for
// races, bounds and divergence. So a kernel contains no PTX and no <<<>>>. It uses CUDA's keywords
//
//   __global__ __device__ __forceinline__ __launch_bounds__(n)
//   threadIdx blockIdx blockDim gridDim
//   __syncthreads() __syncwarp(mask) __threadfence()
//
// and these headers:
//
//   launch.h         launch(kernel, {.grid, .block, .smem_bytes}, exec, arguments...), and
//                    await_previous_grid(), with which every kernel begins
//   shared.h         shared<T>(), dynamic_shared(), shared_address(p), named barriers
//   warp.h           shuffles, votes
//   reduce.h         warp_sum, warp_max, block_sum, block_max
//   pack.h           16-byte loads and stores, converted to f32 and back; prefetch_l2(p)
//   cp_async.h       asynchronous copies from global to shared memory
//   matrix.h         ldmatrix, stmatrix, mma
//   atomics.h        atomic_add, atomic_max, atomic_cas, atomic_exchange
//   math.h           conversions, fast_exp2, fast_rcp, rsqrt
//
// The rules are stricter than CUDA's, because most of what the hardware tolerates is a mistake: all
// threads of a block must reach the same __syncthreads() in the source, and none may have ended
// before; the mask of a warp collective must not include a lane that has ended.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/builtins.h"
#else
#include "shale/kernels/simt/emu/builtins.h"
#endif

#include "shale/kernels/simt/atomics.h"
#include "shale/kernels/simt/cp_async.h"
#include "shale/kernels/simt/launch.h"
#include "shale/kernels/simt/math.h"
#include "shale/kernels/simt/matrix.h"
#include "shale/kernels/simt/pack.h"
#include "shale/kernels/simt/reduce.h"
#include "shale/kernels/simt/shared.h"
#include "shale/kernels/simt/warp.h"

namespace shale::kernels::SHALE_BACKEND {
using namespace simt;
}
