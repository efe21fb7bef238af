// This file is included once per instruction set, by foreach_target.h; hence the guard that
// toggles.
#if defined(SHALE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_SIMD_INL_H_
#undef SHALE_KERNELS_CPU_SIMD_INL_H_
#else
#define SHALE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shale/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32Tag>;

// f32 lanes of a full vector; a constant for every x86 target.
inline constexpr int64_t kF32Lanes = static_cast<int64_t>(hn::MaxLanes(F32Tag()));

// AVX2 and later have masked 32-bit memory operations and f16 conversion, AVX-512 also has masked
// 16-bit ones. (A smaller HWY_TARGET is a newer instruction set.) On other targets Highway's masked
// load may read past the end of the buffer, so partial vectors go through a small array.
inline constexpr bool kHasMasked32 = HWY_TARGET <= HWY_AVX2;
inline constexpr bool kHasMasked16 = HWY_TARGET <= HWY_AVX3;
inline constexpr bool kHasF16 = HWY_TARGET <= HWY_AVX2;

// ---- Loads and stores of f32 vectors in any float dtype; load_n, store_n: only the first `count`
// lanes ----

template <class D, class DBits = hn::Rebind<uint16_t, D>>
HWY_INLINE hn::Vec<D> from_bf16_bits(D d, hn::Vec<DBits> bits) {
  const hn::Rebind<uint32_t, D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

// Converts to bf16 with the same bits as struct bf16: to nearest, ties to even; NaN stays NaN.
template <class D, class DBits = hn::Rebind<uint16_t, D>>
HWY_INLINE hn::Vec<DBits> to_bf16_bits(D, hn::Vec<D> v) {
  const hn::Rebind<uint32_t, D> du;
  const auto u = hn::BitCast(du, v);
  const auto high = hn::ShiftRight<16>(u);
  const auto odd = hn::And(high, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(high, hn::Set(du, 0x40u));
  // not Ne(v, v), which is false for NaN on x86
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::TruncateTo(DBits(), hn::IfThenElse(is_nan, quiet, rounded));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* from) {
  const hn::Rebind<uint16_t, D> d16;
  return from_bf16_bits(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* from) {
  if constexpr (kHasF16) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    HWY_ALIGN float wide[hn::MaxLanes(D())];
    for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = static_cast<float>(from[i]);
    return hn::Load(d, wide);
  }
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, float* to) {
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, bf16* to) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(to_bf16_bits(d, v), d16, reinterpret_cast<uint16_t*>(to));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, f16* to) {
  if constexpr (kHasF16) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(to));
  } else {
    HWY_ALIGN float wide[hn::MaxLanes(D())];
    hn::Store(v, d, wide);
    for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = f16(wide[i]);
  }
}

// Loads the first `count` lanes, 0 <= count <= Lanes; the other lanes are zero. Reads no other
// memory.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* from, int64_t count) {
  const size_t n = static_cast<size_t>(count);
  if constexpr (kHasMasked32 && sizeof(T) == 4) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, from);
  } else if constexpr (kHasMasked16 && std::is_same_v<T, bf16>) {
    const hn::Rebind<uint16_t, D> d16;
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
    return from_bf16_bits(d, hn::MaskedLoad(hn::FirstN(d16, n), d16, bits));
  } else {
    T whole[hn::MaxLanes(D())] = {};
    for (size_t i = 0; i < n; ++i) whole[i] = from[i];
    return load(d, whole);
  }
}

// Stores the first `count` lanes. Writes no other memory.
template <class D, typename T>
HWY_INLINE void store_n(hn::Vec<D> v, D d, T* to, int64_t count) {
  const size_t n = static_cast<size_t>(count);
  if constexpr (kHasMasked32 && sizeof(T) == 4) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, to);
  } else if constexpr (kHasMasked16 && std::is_same_v<T, bf16>) {
    const hn::Rebind<uint16_t, D> d16;
    hn::BlendedStore(to_bf16_bits(d, v), hn::FirstN(d16, n), d16, reinterpret_cast<uint16_t*>(to));
  } else {
    T whole[hn::MaxLanes(D())];
    store(v, d, whole);
    for (size_t i = 0; i < n; ++i) to[i] = whole[i];
  }
}

// ---- Reductions across lanes, in an order that depends only on the instruction set ----

template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

template <class D>
HWY_INLINE float max_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
