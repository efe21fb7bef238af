#pragma once

#include "shale/kernels/simt/cuda/shared.h"

namespace shale::kernels::cuda::simt {

struct alignas(8) MBarrier {
  uint64_t state;
};

__device__ __forceinline__ void mbarrier_init(MBarrier& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
               : "memory");
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(MBarrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared::cta.b64 state, [%0];\n"
      "}" ::"r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(MBarrier& barrier, int bytes) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
}

// The instruction try_wait sleeps for a time that the hardware chooses, so the loop is not a busy
// one.
__device__ __forceinline__ void mbarrier_wait(MBarrier& barrier, int parity) {
  const uint32_t address = shared_address(&barrier);
  uint32_t done = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  } while (done == 0);
}

__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace shale::kernels::cuda::simt
