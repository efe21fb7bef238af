#pragma once

#include <bit>

#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

template <typename T>
inline constexpr int kPackSize = 16 / sizeof(T);

template <typename T, int kCount = kPackSize<T>>
struct alignas(kCount * sizeof(T)) Pack {
  T at[kCount];
};

__device__ __forceinline__ bool is_packed(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// A type of kBytes bytes that the compiler loads or stores in one instruction. For an array of
// smaller types it does not always do so.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = uint8_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

template <int kCount = 0, typename T>
__device__ __forceinline__ auto load_pack(const T* p) {
  using Packed = Pack<T, kCount == 0 ? kPackSize<T> : kCount>;
  return std::bit_cast<Packed>(*reinterpret_cast<const typename WordOf<sizeof(Packed)>::Type*>(p));
}
// Uses inline PTX for more than 4 bytes, because the compiler may split an ordinary store of a
// uint4 into four.
template <typename T, int kCount>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, kCount>& pack) {
  using Word = typename WordOf<sizeof(pack)>::Type;
  const Word word = std::bit_cast<Word>(pack);
  if constexpr (sizeof(pack) == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
  } else if constexpr (sizeof(pack) == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(word.x),
                 "r"(word.y)
                 : "memory");
  } else {
    *reinterpret_cast<Word*>(p) = word;
  }
}
template <typename T, int kCount>
__device__ __forceinline__ void store_shared_pack(T* p, const Pack<T, kCount>& pack) {
  using Word = typename WordOf<sizeof(pack)>::Type;
  *reinterpret_cast<Word*>(p) = std::bit_cast<Word>(pack);
}

__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

}  // namespace shale::kernels::cuda::simt
