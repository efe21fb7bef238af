#pragma once

#include "shale/kernels/simt/cuda/shared.h"
#include "shale/kernels/simt/cuda/wgmma_instructions.h"
#include "shale/kernels/simt/wgmma_tile.h"

namespace shale::kernels::cuda::simt {

template <typename T, int kColumns, bool kAMnMajor, bool kBMnMajor>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 2], WgmmaTile<kAMnMajor> a,
                                      WgmmaTile<kBMnMajor> b, bool accumulate) {
  WgmmaInstruction<kColumns>::template shared<T, kAMnMajor, kBMnMajor>(d, a.descriptor,
                                                                       b.descriptor, accumulate);
}
template <typename T, int kColumns, bool kBMnMajor>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                                      WgmmaTile<kBMnMajor> b, bool accumulate) {
  WgmmaInstruction<kColumns>::template registers<T, kBMnMajor>(d, a, b.descriptor, accumulate);
}

template <typename TA, typename TB, int kColumns>
__device__ __forceinline__ void wgmma(float (&d)[kColumns / 2], WgmmaTile<false> a,
                                      WgmmaTile<false> b, bool accumulate) {
  WgmmaInstruction<kColumns>::template bytes<TA, TB>(d, a.descriptor, b.descriptor, accumulate);
}

// Tells the compiler that d changes here, so that it moves neither reads nor writes of d across
// this point. An asm statement says nothing about registers that it does not name, so there is one
// for each element. The loop takes d by index: with a loop over one of several arrays, the compiler
// did not unroll it, and all arrays went to local memory.
template <int kCount>
__device__ __forceinline__ void change(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kArrays, int kCount>
__device__ __forceinline__ void change(float (&d)[kArrays][kCount]) {
#pragma unroll
  for (int i = 0; i < kArrays; ++i) change(d[i]);
}

template <int kCount>
__device__ __forceinline__ void discard(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "=f"(d[i]));
}

template <typename... Accumulators>
__device__ __forceinline__ void wgmma_fence(Accumulators&... d) {
  (change(d), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kNewest, typename... Accumulators>
__device__ __forceinline__ void wgmma_wait(Accumulators&... d) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
  (change(d), ...);
}

__device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// The asm computes the word's address again each time, because keeping it would cost a register.
template <int kThreads>
__device__ __forceinline__ void settle(uint32_t (&words)[kThreads], uint32_t bits) {
  asm volatile(
      "{\n"
      ".reg .u32 word;\n"
      "mov.u32 word, %%tid.x;\n"
      "mad.lo.u32 word, word, 4, %0;\n"
      "st.shared.u32 [word], %1;\n"
      "}" ::"r"(shared_address(words)),
      "r"(bits)
      : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 240 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  static_assert(kRegisters >= 24 && kRegisters <= 240 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace shale::kernels::cuda::simt
