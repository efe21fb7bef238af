#pragma once

// Matmuls by a warpgroup: 128 threads, starting at a multiple of 128, which must all make every
// call here (PTX ISA, "Asynchronous warpgroup level matrix instructions").
//
//   wgmma<T, n>(d, a, b, accumulate)   d [64, n] = a [64, 16] b [16, n] (+ d if accumulate); T is
//                                      bf16 or f16, d f32; n a multiple of 8 up to 256. a and b
//                                      are tiles in shared memory, or a is four registers
//   wgmma<TA, TB, n>(d, a, b, accumulate)   d [64, n] = a [64, 32] b [32, n], of e4m3 or e5m2
//                                      (kernels/fp8_number.h): tiles in shared memory, along k. The
//                                      tensor cores sum with fewer bits than f32 has, so
//                                      a kernel must add up results itself from time to time
//                                      (DeepSeek-V3, arXiv:2412.19437, section 3.3.2)
//   wgmma_fence(d...)      before the first wgmma of every group: orders earlier writes to the
//                          registers of d and a before it
//   discard(d)             the contents of d are not needed: before a first matmul without
//                          `accumulate`, so that d's old value occupies no registers until there
//   wgmma_commit()         makes a group of the matmuls since the last commit
//   wgmma_wait<n>(d...)    waits until all but the n newest groups are done
//
// The matmuls run asynchronously. Until the wait, d and registers that hold a must be neither read
// nor written, and both arrays must stay alive. Fence and wait name every d, which keeps the
// compiler from moving other accesses to d across them. The operands in shared memory may also be
// overwritten only after the wait. Matmuls on the same d may follow each other directly. A first
// matmul without `accumulate` saves clearing d.
//
// Layout of registers, with thread t of the warpgroup, warp w = t / 32, group g = t % 32 / 4, q = t
// % 4:
//
//   d[4 j + i]   row 16 w + g + 8 (i / 2), column 8 j + 2 q + i % 2
//   a[i]         row 16 w + g + 8 (i % 2), columns 2 q + 8 (i / 2) and the next, in one register
//
// This is mma_m16n8k16's layout: two adjacent 8-column blocks of a d, rounded, are an a of the next
// matmul.
//
// A tile in shared memory has lines of 128 bytes with TMA's swizzle and starts at a multiple of
// 1024 (kernels/tensor_map_spec.h). There are two layouts, which TMA boxes produce:
//
//   k_major(tile, k)       line r has row r of a (column r of b), 64 of k; a matmul takes 16,
//                          from k on: 0, 16, 32 or 48. k_major<1>: 8-bit elements, 128 of k; a
//                          matmul takes 32, from k on: 0, 32, 64 or 96
//   mn_major(tile, k, s)   line r has 64 rows of a (columns of b) of the r-th k; a matmul takes
//                          16 lines, from k on, a multiple of 16. The next 64 rows (columns) are a
//                          separate tile, s bytes later: the bytes of a box
//
//   stmatrix_x4(row, registers)   stmatrix<4> of matrix.h as one instruction: stores two
//                                 neighbouring 8-column blocks of a d, rounded, to shared memory
//
// Computations that should overlap a matmul must be settled before the wait: the wait names no
// registers, so ptxas moves it above everything that does not access memory.
//
//   settle(words, bits)    stores bits to the thread's word of an array in shared memory with one
//                          word per thread, which is never read; so the values that bits depend on
//                          are computed before the next wgmma_wait
//
// A warpgroup may change the number of registers of its threads, if the kernel was compiled for
// fewer: __launch_bounds__(threads, 1), with each role in one branch of a single if. All of its
// threads must call it once. Four threads at the same position of four warpgroups have 512
// registers together, three have 504.
//
//   shrink_registers<n>()  n is 24 to 240, a multiple of 8
//   grow_registers<n>()    waits until others have shrunk

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/wgmma.h"
#else
#include "shale/kernels/simt/emu/wgmma.h"
#endif

namespace shale::kernels::SHALE_BACKEND::simt {

inline constexpr int kWarpgroupSize = 128;

}  // namespace shale::kernels::SHALE_BACKEND::simt
