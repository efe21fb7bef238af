// Replaces kernels/simt in kernels that NVRTC compiles, because NVRTC has no standard library. Only
// used as text; kernels/cuda/nvrtc/program.cpp puts the limits of kernels/pointwise.h before it.

using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;

namespace shale {

enum class DType : uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64, kU8, kU16, kU32 };
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

namespace kernels {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float to_float(f16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T at[kCount];
};
template <int kBytes>
struct Word;
template <>
struct Word<4> {
  using Type = unsigned int;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

// Loads kCount elements in one access.
template <int kCount, typename T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* p) {
  using Type = typename Word<kCount * sizeof(T)>::Type;
  return __builtin_bit_cast(Pack<T, kCount>, *reinterpret_cast<const Type*>(p));
}
template <typename T, int kCount>
__device__ __forceinline__ void store_pack(T* p, const Pack<T, kCount>& pack) {
  using Type = typename Word<kCount * sizeof(T)>::Type;
  *reinterpret_cast<Type*>(p) = __builtin_bit_cast(Type, pack);
}

__device__ __forceinline__ void await_previous_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace kernels
}  // namespace shale
