#pragma once

#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/kernels/simt/cuda/shared.h"
#include "shale/kernels/simt/cuda/warp.h"

namespace shale::kernels::cuda::simt {

// The asm has volatile and "memory" to keep the loads after the barrier that precedes them.
template <int kCount, bool kTransposed = false>
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[kCount], const void* row) {
  const uint32_t address = shared_address(row);
  if constexpr (kCount == 1 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kCount == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kCount == 2 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (!kTransposed) {
    static_assert(kCount == 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    static_assert(kCount == 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

// The instruction stmatrix needs sm_90; kernels use it only through stmatrix_x4(). This function
// does the same with plain stores, to row addresses that it gets from other lanes by shuffles.
template <int kCount, bool kTransposed = false>
__device__ __forceinline__ void stmatrix(void* row, const uint32_t (&r)[kCount]) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  const int lane = static_cast<int>(threadIdx.x % kWarpSize), group = lane / 4, t = lane % 4;
  const auto own = reinterpret_cast<uint64_t>(row);
#pragma unroll
  for (int matrix = 0; matrix < kCount; ++matrix) {
    if constexpr (kTransposed) {
      const uint64_t first = shfl(own, matrix * 8 + 2 * t);
      const uint64_t second = shfl(own, matrix * 8 + 2 * t + 1);
      reinterpret_cast<uint16_t*>(first)[group] = static_cast<uint16_t>(r[matrix]);
      reinterpret_cast<uint16_t*>(second)[group] = static_cast<uint16_t>(r[matrix] >> 16);
    } else {
      const uint64_t target = shfl(own, matrix * 8 + group);
      reinterpret_cast<uint32_t*>(target)[t] = r[matrix];
    }
  }
}

template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  if constexpr (std::is_same_v<T, bf16>) {
    __trap();  // f16 only: no bf16 mma before sm_80
  } else {
    static_assert(std::is_same_v<T, f16>);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
          "{%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
  }
#else
  if constexpr (std::is_same_v<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    static_assert(std::is_same_v<T, f16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

__device__ __forceinline__ uint32_t to_tf32(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return __float_as_uint(x);
#else
  uint32_t result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
#endif
}

}  // namespace shale::kernels::cuda::simt
