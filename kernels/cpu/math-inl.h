// Elementary functions on vectors of f32. Errors were measured against f64 over the whole range.
#if defined(SHALE_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_MATH_INL_H_
#undef SHALE_KERNELS_CPU_MATH_INL_H_
#else
#define SHALE_KERNELS_CPU_MATH_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// c0 + x (c1 + x (c2 + ...)). The coefficients interpolate at Chebyshev nodes.
template <class D>
HWY_INLINE hn::Vec<D> horner(D d, hn::Vec<D>, float c0) {
  return hn::Set(d, c0);
}
template <class D, typename... Rest>
HWY_INLINE hn::Vec<D> horner(D d, hn::Vec<D> x, float c0, Rest... rest) {
  return hn::MulAdd(x, horner(d, x, rest...), hn::Set(d, c0));
}

// x = k ln 2 + r with |r| <= ln 2 / 2. Gives e^r, and k + 127 in the low bits of a float's bits, for
// |x| < 2^21.
template <class D>
HWY_INLINE hn::Vec<D> exp_reduced(D d, hn::Vec<D> x, hn::Vec<D>& shifted) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const auto magic = hn::Set(d, 0x1.8p23f + 127.f);
  shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p+0f), magic);
  const auto rounded = hn::Sub(shifted, magic);
  // ln 2 in two parts; the first has so few bits that its product with k is exact.
  auto r = hn::NegMulAdd(rounded, hn::Set(d, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(rounded, hn::Set(d, 0x1.7f7d1cp-20f), r);
  const auto p = horner(d, r, 0.5f, 0.166665766f, 0.0416665541f, 0.00836324667f, 0.00139262681f);
  return hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.f));
}

// 2^k of bits that end in k + 127, k in [-126, 127]. It is multiplied with, not added to an exponent:
// only a product keeps a NaN.
template <class D, class DI = hn::RebindToSigned<D>>
HWY_INLINE hn::Vec<D> pow2(D d, hn::Vec<DI> bits) {
  return hn::BitCast(d, hn::ShiftLeft<23>(bits));
}

// e^x: 2 ulp, subnormal results included; NaN gives NaN, infinities their limits.
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Comparisons rather than Min and Max: they let a NaN through.
  const auto low = hn::Set(d, -104.f), high = hn::Set(d, 89.f);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  hn::Vec<D> shifted;
  const auto mantissa = exp_reduced(d, x, shifted);
  // 2^k itself may be out of range: two factors.
  const auto bias = hn::Set(di, 127);
  const auto k = hn::Sub(hn::BitCast(di, shifted),
                         hn::BitCast(di, hn::Set(d, 0x1.8p23f + 127.f)));
  const auto half = hn::ShiftRight<1>(k);
  const auto first = pow2(d, hn::Add(half, bias));
  const auto second = pow2(d, hn::Add(hn::Sub(k, half), bias));
  return hn::Mul(hn::Mul(mantissa, first), second);
}

// e^x for x <= 0 (or NaN), for softmax: 2 ulp, and 0 instead of subnormal results. Cheaper.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  const auto low = hn::Set(d, -87.f);
  const auto vanishes = hn::Lt(x, low);
  hn::Vec<D> shifted;
  const auto mantissa = exp_reduced(d, hn::IfThenElse(vanishes, low, x), shifted);
  const auto power = pow2(d, hn::BitCast(hn::RebindToSigned<D>(), shifted));
  return hn::IfThenZeroElse(vanishes, hn::Mul(mantissa, power));
}

// e^x with x clamped to [-87, 87], where results are finite and normal: 2 ulp.
template <class D>
HWY_INLINE hn::Vec<D> exp_clamped(D d, hn::Vec<D> x) {
  const auto low = hn::Set(d, -87.f), high = hn::Set(d, 87.f);
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  hn::Vec<D> shifted;
  const auto mantissa = exp_reduced(d, x, shifted);
  return hn::Mul(mantissa, pow2(d, hn::BitCast(hn::RebindToSigned<D>(), shifted)));
}

// 1 / (1 + e^-x): 4 ulp; no smaller than e^-87.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.f);
  return hn::Div(one, hn::Add(one, exp_clamped(d, hn::Neg(x))));
}

// 4 ulp. Below 0.625 an odd polynomial, as 1 - 2 / (e^2x + 1) would cancel.
template <class D>
HWY_INLINE hn::Vec<D> tanh_f32(D d, hn::Vec<D> x) {
  const auto a = hn::Abs(x), t = hn::Mul(x, x), one = hn::Set(d, 1.f);
  const auto p = horner(d, t, -0.333333332f, 0.133333036f, -0.0539592596f, 0.0217689187f,
                        -0.00834394566f, 0.00229274494f);
  const auto small = hn::MulAdd(hn::Mul(x, t), p, x);
  const auto e = exp_f32(d, hn::Add(a, a));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

// Absolute error below 1.6e-7, relative error below 4 ulp. Below 1 an odd polynomial, above it
// 1 - exp(q(|x|)) with q a polynomial for log(erfc).
template <class D>
HWY_INLINE hn::Vec<D> erf_f32(D d, hn::Vec<D> x) {
  const auto t = hn::Mul(x, x);
  const auto limit = hn::Set(d, 4.f);  // erf(4) rounds to 1
  auto a = hn::Abs(x);
  a = hn::IfThenElse(hn::Gt(a, limit), limit, a);
  const auto small = hn::Mul(x, horner(d, t, 1.12837917f, -0.376126267f, 0.112835947f,
                                       -0.026854212f, 0.00518908742f, -0.000801686428f,
                                       7.87587505e-05f));
  const auto q = horner(d, a, 0.00032013805f, -1.13023343f, -0.631826052f, -0.110080083f,
                        0.026421136f, -0.00475959629f, 0.000596805626f, -4.60580427e-05f,
                        1.63715142e-06f);
  const auto large = hn::Sub(hn::Set(d, 1.f), exp_nonpositive(d, q));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 1.f)), small, hn::CopySign(large, x));
}

// GELU, tanh form: x s with s = (1 + tanh u) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
// By the sigmoid, because 1 + tanh(u) cancels for negative u.
inline constexpr float kTwoSqrt2OverPi = 1.5957691216f;

template <class D>
HWY_INLINE hn::Vec<D> gelu_tanh(D d, hn::Vec<D> x) {
  const auto u2 = horner(d, hn::Mul(x, x), kTwoSqrt2OverPi, kTwoSqrt2OverPi * 0.044715f);
  return hn::Mul(x, sigmoid(d, hn::Mul(x, u2)));
}

// s + x s (1 - s) d(2u)/dx. With e = exp(-2u), 1 - s is e s, which does not cancel.
template <class D>
HWY_INLINE hn::Vec<D> dgelu_tanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.f), t = hn::Mul(x, x);
  const auto u2 = horner(d, t, kTwoSqrt2OverPi, kTwoSqrt2OverPi * 0.044715f);
  const auto e = exp_clamped(d, hn::Neg(hn::Mul(x, u2)));
  const auto s = hn::Div(one, hn::Add(one, e));
  const auto du2 = horner(d, t, kTwoSqrt2OverPi, kTwoSqrt2OverPi * 3 * 0.044715f);
  // Far out s (1 - s) is tiny and du2 huge; in this order no product overflows.
  return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Mul(e, s)), du2, s);
}

// GELU, exact form: x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.
template <class D>
HWY_INLINE hn::Vec<D> normal_cdf(D d, hn::Vec<D> x) {
  const auto half = hn::Set(d, 0.5f);
  return hn::MulAdd(half, erf_f32(d, hn::Mul(x, hn::Set(d, 0.70710678f))), half);
}

template <class D>
HWY_INLINE hn::Vec<D> gelu_erf(D d, hn::Vec<D> x) {
  return hn::Mul(x, normal_cdf(d, x));
}

// Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
template <class D>
HWY_INLINE hn::Vec<D> dgelu_erf(D d, hn::Vec<D> x) {
  const auto density = exp_nonpositive(d, hn::Mul(hn::Set(d, -0.5f), hn::Mul(x, x)));
  return hn::MulAdd(hn::Mul(x, hn::Set(d, 0.39894228f)), density, normal_cdf(d, x));
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
