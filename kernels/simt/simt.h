#pragma once

// What a kernel includes, and all that it includes of a device. A kernel file is compiled twice: by
// nvcc, and by the host compiler for the emulator, which runs the same source on the CPU and checks
// it for races, bounds and divergence. So a kernel holds no PTX and no <<<>>>; it spells as CUDA
// does
//
//   __global__ __device__ __forceinline__ __launch_bounds__(n)
//   threadIdx blockIdx blockDim gridDim
//   __syncthreads() __syncwarp(mask) __threadfence()
//
// and finds everything else in these headers:
//
//   launch.h         launch(kernel, {.grid, .block, .smem_bytes}, exec, arguments...), and
//                    await_previous_grid(), with which every kernel begins
//   shared.h         shared<T>(), dynamic_shared(), shared_address(p), named barriers
//   warp.h           shuffles, votes
//   reduce.h         warp_sum, warp_max, block_sum, block_max
//   pack.h           16-byte loads and stores, converted to f32 and back; prefetch_l2(p)
//   cp_async.h       copies from global to shared memory that run on their own
//   matrix.h         ldmatrix, stmatrix, mma
//   atomics.h        atomic_add, atomic_max, atomic_cas, atomic_exchange
//   math.h           conversions, fast_exp2, fast_rcp, rsqrt
//
// Stricter than CUDA, because what the hardware lets pass is mostly a mistake: all threads of a
// block reach the same __syncthreads() in the source, none has ended before; a warp collective
// names no lane that has ended.

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
