#pragma once

// Vectorised accesses: neighbouring elements of an array in global or shared memory, loaded and
// stored together, 16 bytes if possible.
//
//   kPackSize<T>             elements in 16 bytes: 4 of f32, 8 of bf16 or f16
//   load_pack<n>(p)          Pack<T, n>: n elements (default kPackSize<T>), 1 to 16 bytes in all
//   store_pack(p, pack)      to global memory
//   store_shared_pack(p, pack)
//   load_floats<n>(p)        Floats<n>: the same, converted to f32
//   store_floats(p, floats)  rounded to T, to global memory
//   store_shared_floats(p, floats)
//   is_packed(p)             whether p is a multiple of 16
//   prefetch_l2(p)           prefetches the line at p in global memory: only a hint, so it may come
//                            before await_previous_grid()
//
// All addresses must be multiples of the pack's size.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/pack.h"
#else
#include "shale/kernels/simt/emu/pack.h"
#endif
#include <bit>

#include "shale/kernels/simt/math.h"

namespace shale::kernels::SHALE_BACKEND::simt {

template <int kCount>
struct Floats {
  float at[kCount];
};

template <typename T, int kCount>
__device__ __forceinline__ Floats<kCount> to_floats(const Pack<T, kCount>& pack) {
  Floats<kCount> floats;
#pragma unroll
  for (int i = 0; i < kCount; ++i) floats.at[i] = to_float(pack.at[i]);
  return floats;
}

template <typename T, int kCount>
__device__ __forceinline__ Pack<T, kCount> from_floats(const Floats<kCount>& floats) {
  if constexpr (sizeof(T) == 2 && kCount % 2 == 0) {
    // Converts two numbers at a time, in one instruction.
    struct Pairs {
      uint32_t at[kCount / 2];
    } pairs;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      pairs.at[i] = pack_pair<T>(floats.at[2 * i], floats.at[2 * i + 1]);
    }
    return std::bit_cast<Pack<T, kCount>>(pairs);
  } else if constexpr (kCount == 1) {
    return {{from_float<T>(floats.at[0])}};  // GCC 12 at -O1 fails on the loop below
  } else {
    Pack<T, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.at[i] = from_float<T>(floats.at[i]);
    return pack;
  }
}

template <int kCount = 0, typename T>
__device__ __forceinline__ auto load_floats(const T* p) {
  return to_floats(load_pack<kCount>(p));
}

template <typename T, int kCount>
__device__ __forceinline__ void store_floats(T* p, const Floats<kCount>& floats) {
  store_pack(p, from_floats<T>(floats));
}
template <typename T, int kCount>
__device__ __forceinline__ void store_shared_floats(T* p, const Floats<kCount>& floats) {
  store_shared_pack(p, from_floats<T>(floats));
}

}  // namespace shale::kernels::SHALE_BACKEND::simt
