// The formulas of pointwise ops on SIMD vectors of f32.
#if defined(SHALE_KERNELS_CPU_POINTWISE_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_POINTWISE_FUNCTIONS_INL_H_
#undef SHALE_KERNELS_CPU_POINTWISE_FUNCTIONS_INL_H_
#else
#define SHALE_KERNELS_CPU_POINTWISE_FUNCTIONS_INL_H_
#endif

#include "shale/kernels/cpu/simd-inl.h"
#include "shale/kernels/pointwise_op.h"

// The shared formulas contain CUDA's keywords.
#define __device__
#define __forceinline__ HWY_INLINE

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

using F32Mask = hn::Mask<F32Tag>;
using I32Tag = hn::RebindToSigned<F32Tag>;

HWY_INLINE F32Vec like(F32Vec, float value) {
  return hn::Set(F32Tag(), value);
}
HWY_INLINE F32Vec choose(F32Mask mask, F32Vec yes, F32Vec no) {
  return hn::IfThenElse(mask, yes, no);
}
HWY_INLINE F32Mask is_nan(F32Vec x) {
  return hn::IsNaN(x);
}
HWY_INLINE F32Vec multiply_add(F32Vec a, F32Vec b, F32Vec c) {
  return hn::MulAdd(a, b, c);
}
HWY_INLINE F32Vec square_root(F32Vec x) {
  return hn::Sqrt(x);
}
HWY_INLINE F32Vec absolute(F32Vec x) {
  return hn::Abs(x);
}
HWY_INLINE F32Vec with_sign_of(F32Vec magnitude, F32Vec sign) {
  return hn::CopySign(magnitude, sign);
}
HWY_INLINE F32Vec shift_to_exponent(F32Vec x) {
  return hn::BitCast(F32Tag(), hn::ShiftLeft<23>(hn::BitCast(I32Tag(), x)));
}
HWY_INLINE F32Vec split_exponent(F32Vec x, F32Vec& mantissa) {
  const I32Tag di;
  const auto lowest = hn::Set(di, 0x3f3504f3);  // bits of sqrt(1/2)
  const auto bits = hn::Sub(hn::BitCast(di, x), lowest);
  const auto fraction = hn::And(bits, hn::Set(di, 0x007fffff));
  mantissa = hn::BitCast(F32Tag(), hn::Add(fraction, lowest));
  return hn::ConvertTo(F32Tag(), hn::ShiftRight<23>(bits));
}

// Computes x - k pi/2 and k mod 4 in f64, for half of the lanes of an f32 vector.
using F64Tag = hn::Repartition<double, F32Tag>;
HWY_INLINE hn::Vec<F64Tag> reduce_half(hn::Vec<F64Tag> x, hn::Vec<F64Tag>& quarter) {
  const F64Tag d;
  const auto magic = hn::Set(d, 0x1.8p52), four = hn::Set(d, 4.0);
  const auto k = hn::Sub(hn::MulAdd(x, hn::Set(d, 0x1.45f306dc9c883p-1), magic), magic);
  auto r = hn::NegMulAdd(k, hn::Set(d, 0x1.921fb54442d18p+0), x);
  r = hn::NegMulAdd(k, hn::Set(d, 0x1.1a62633145c07p-54), r);
  // Computes k mod 4, in [-2, 2].
  const auto turns = hn::Sub(hn::MulAdd(k, hn::Set(d, 0.25), magic), magic);
  quarter = hn::NegMulAdd(turns, four, k);
  return r;
}

HWY_INLINE F32Vec reduce_quarters(F32Vec x, F32Vec& quarter) {
  const F32Tag d;
  const F64Tag d64;
  const hn::Rebind<float, F64Tag> half;
  hn::Vec<F64Tag> q_low, q_high;
  const auto low = reduce_half(hn::PromoteTo(d64, hn::LowerHalf(half, x)), q_low);
  const auto high = reduce_half(hn::PromoteTo(d64, hn::UpperHalf(half, x)), q_high);
  quarter = hn::Combine(d, hn::DemoteTo(half, q_high), hn::DemoteTo(half, q_low));
  quarter = choose(quarter < hn::Zero(d), hn::Add(quarter, hn::Set(d, 4.f)), quarter);
  return hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
}

#include "shale/kernels/pointwise_functions-inl.h"

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#undef __device__
#undef __forceinline__

#endif  // include guard
