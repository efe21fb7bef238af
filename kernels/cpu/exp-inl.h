// Exponentials of SIMD vectors of f32. Errors were measured against f64 over the whole range.
#if defined(SHALE_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_EXP_INL_H_
#undef SHALE_KERNELS_CPU_EXP_INL_H_
#else
#define SHALE_KERNELS_CPU_EXP_INL_H_
#endif

#include "shale/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Computes c0 + x (c1 + x (c2 + ...)). The coefficients interpolate at Chebyshev nodes.
template <class D>
HWY_INLINE hn::Vec<D> horner(D d, hn::Vec<D>, float c0) {
  return hn::Set(d, c0);
}
template <class D, typename... Rest>
HWY_INLINE hn::Vec<D> horner(D d, hn::Vec<D> x, float c0, Rest... rest) {
  return hn::MulAdd(x, horner(d, x, rest...), hn::Set(d, c0));
}

// Splits x = k ln 2 + r with |r| <= ln 2 / 2. Returns e^r, and k + 127 in the low bits of
// `shifted`, for |x| < 2^21.
template <class D>
HWY_INLINE hn::Vec<D> exp_reduced(D d, hn::Vec<D> x, hn::Vec<D>& shifted) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves the integer in the low bits.
  const auto magic = hn::Set(d, 0x1.8p23f + 127.f);
  shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p+0f), magic);
  const auto rounded = hn::Sub(shifted, magic);
  // ln 2 is split into two parts; the first has so few bits that its product with k is exact.
  auto r = hn::NegMulAdd(rounded, hn::Set(d, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(rounded, hn::Set(d, 0x1.7f7d1cp-20f), r);
  const auto p = horner(d, r, 0.5f, 0.166665766f, 0.0416665541f, 0.00836324667f, 0.00139262681f);
  return hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.f));
}

// Returns 2^k from `shifted`, whose low bits are k + 127, for k in [-126, 127]. Callers multiply by
// 2^k instead of adding k to an exponent, because only a multiplication keeps a NaN.
template <class D, class DI = hn::RebindToSigned<D>>
HWY_INLINE hn::Vec<D> pow2(D d, hn::Vec<DI> bits) {
  return hn::BitCast(d, hn::ShiftLeft<23>(bits));
}

// Computes e^x with an error of at most 2 ulp, including subnormal results; NaN gives NaN,
// infinities give their limits.
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Comparisons are used instead of Min and Max because they keep NaN.
  const auto low = hn::Set(d, -104.f), high = hn::Set(d, 89.f);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  hn::Vec<D> shifted;
  const auto mantissa = exp_reduced(d, x, shifted);
  // 2^k itself may be out of range, so two factors are used.
  const auto bias = hn::Set(di, 127);
  const auto k = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, hn::Set(d, 0x1.8p23f + 127.f)));
  const auto half = hn::ShiftRight<1>(k);
  const auto first = pow2(d, hn::Add(half, bias));
  const auto second = pow2(d, hn::Add(hn::Sub(k, half), bias));
  return hn::Mul(hn::Mul(mantissa, first), second);
}

// Computes e^x for x <= 0 (or NaN), for softmax: at most 2 ulp, and 0 instead of subnormal results.
// It is faster than exp_f32.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  const auto low = hn::Set(d, -87.f);
  const auto vanishes = hn::Lt(x, low);
  hn::Vec<D> shifted;
  const auto mantissa = exp_reduced(d, hn::IfThenElse(vanishes, low, x), shifted);
  const auto power = pow2(d, hn::BitCast(hn::RebindToSigned<D>(), shifted));
  return hn::IfThenZeroElse(vanishes, hn::Mul(mantissa, power));
}

// Computes e^x with x clamped to [-87, 87], where results are finite and normal: at most 2 ulp.
template <class D>
HWY_INLINE hn::Vec<D> exp_clamped(D d, hn::Vec<D> x) {
  const auto low = hn::Set(d, -87.f), high = hn::Set(d, 87.f);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  hn::Vec<D> shifted;
  const auto mantissa = exp_reduced(d, x, shifted);
  return hn::Mul(mantissa, pow2(d, hn::BitCast(hn::RebindToSigned<D>(), shifted)));
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
