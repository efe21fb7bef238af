#pragma once

// 16 bytes at a time: what a thread should load and store of an array in global or shared memory.
//
//   kPackSize<T>                 elements of a pack: 4 of f32, 8 of bf16 or f16
//   load_pack(p), store_pack(p)  Pack<T>; p is a multiple of 16
//   load_floats(p)               Floats<T>: a pack, converted to f32
//   store_floats(p, floats)      rounded to T
//   is_packed(p)                 whether p is a multiple of 16

#include "kernels/simt/backend.h"

#ifdef __CUDACC__
#include "kernels/simt/cuda/pack.h"
#else
#include "kernels/simt/emu/pack.h"
#endif
#include "kernels/simt/math.h"

namespace shale::kernels::SHALE_BACKEND::simt {

template <typename T>
struct Floats {
  float at[kPackSize<T>];
};

template <typename T>
__device__ __forceinline__ Floats<T> load_floats(const T* p) {
  const Pack<T> pack = load_pack(p);
  Floats<T> floats;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) floats.at[i] = to_float(pack.at[i]);
  return floats;
}

template <typename T>
__device__ __forceinline__ void store_floats(T* p, const Floats<T>& floats) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) pack.at[i] = from_float<T>(floats.at[i]);
  store_pack(p, pack);
}

}  // namespace shale::kernels::SHALE_BACKEND::simt
