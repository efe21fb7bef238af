#pragma once

// Products by a warpgroup: 128 threads from a multiple of 128 on, all of which make every call here
// (PTX ISA, "Asynchronous warpgroup level matrix instructions").
//
//   wgmma<T, n>(d, a, b, accumulate)   d [64, n] = a [64, 16] b [16, n] (+ d if accumulate); T is
//                                      bf16 or f16, d f32; n a multiple of 8 up to 256. a and b
//                                      are tiles in shared memory, or a is four registers
//   wgmma<TA, TB, n>(d, a, b, accumulate)   d [64, n] = a [64, 32] b [32, n], of e4m3 or e5m2
//                                      (kernels/fp8_number.h): tiles in shared memory, along k. The
//                                      tensor cores keep fewer bits of its sums than f32 has, so
//                                      that a kernel adds them up itself from time to time
//                                      (DeepSeek-V3, arXiv:2412.19437, section 3.3.2)
//   wgmma_fence(d...)      before the first wgmma of every group: what it reads of registers, of d
//                          and a, is what ordinary instructions left there
//   discard(d)             d may hold anything: before a first product without `accumulate`, so
//                          that what d held keeps no registers up to there
//   wgmma_commit()         the products since the last commit are a group
//   wgmma_wait<n>(d...)    until all but the n newest groups are done
//
// The products run while the threads go on. Until the wait, d belongs to them, and so do registers
// that hold a: reading or writing either is an error, and both arrays have to live that long. Fence
// and wait name every d, which keeps the compiler from moving what ordinary code does with it to
// the other side. The operands in shared memory may be written again after the wait too. Products
// on the same d may follow each other without anything between. A first product without
// `accumulate` saves clearing d.
//
// Layout of registers, with thread t of the warpgroup, warp w = t / 32, group g = t % 32 / 4, q = t
// % 4:
//
//   d[4 j + i]   row 16 w + g + 8 (i / 2), column 8 j + 2 q + i % 2
//   a[i]         row 16 w + g + 8 (i % 2), columns 2 q + 8 (i / 2) and the next, in one register
//
// which is mma_m16n8k16's: two neighbouring 8-column blocks of a d, rounded, are an a of the next
// product.
//
// A tile in shared memory lies in lines of 128 bytes with TMA's swizzle, from a multiple of 1024 on
// (kernels/tensor_map_spec.h), in one of two ways. Both are what a box gives:
//
//   k_major(tile, k)       line r holds row r of a (column r of b), 64 of k; the product takes 16,
//                          from k on: 0, 16, 32 or 48. k_major<1>: of 8 bits, 128 of k; the product
//                          takes 32, from k on: 0, 32, 64 or 96
//   mn_major(tile, k, s)   line r holds 64 rows of a (columns of b) of the r-th k; the product
//   takes
//                          16 lines, from k on, a multiple of 16. The next 64 rows (columns) are a
//                          tile of their own, s bytes on: the bytes of a box
//
//   stmatrix_x4(row, registers)   stmatrix<4> of matrix.h, as one instruction: two neighbouring
//                                 8-column blocks of a d, rounded, go to shared memory
//
// What should be computed beside a product has to be settled before the wait: ptxas moves a wait,
// which names no registers, above all that touches no memory.
//
//   settle(words, bits)    stores bits to the thread's own word of an array in shared memory that
//   has
//                          one for every thread, and is never read; so that what they depend on is
//                          computed before the next wgmma_wait
//
// A warpgroup may change how many registers its threads have, where the kernel was compiled for
// fewer: __launch_bounds__(threads, 1), and each role one branch of a single if. All of its threads
// call it once; 512 are there for the four threads at the same place of four warpgroups, 504 for
// three.
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
