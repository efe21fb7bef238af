// Elementary functions on SIMD vectors of f32. Errors were measured against f64 over the whole
// range.
#if defined(SHALE_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_MATH_INL_H_
#undef SHALE_KERNELS_CPU_MATH_INL_H_
#else
#define SHALE_KERNELS_CPU_MATH_INL_H_
#endif

#include "shale/kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// sigmoid(x) = 1 / (1 + e^-x): error at most 4 ulp; results are at least e^-87.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.f);
  return hn::Div(one, hn::Add(one, exp_clamped(d, hn::Neg(x))));
}

// silu(x) = x sigmoid(x), called Swish1 in the SwiGLU paper.
template <class D>
HWY_INLINE hn::Vec<D> silu(D d, hn::Vec<D> x) {
  return hn::Mul(x, sigmoid(d, x));
}

// Derivative of silu: s + x s (1 - s), s = sigmoid(x). 1 - s is computed as e s, e = exp(-x), so
// that it does not cancel.
template <class D>
HWY_INLINE hn::Vec<D> dsilu(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.f);
  const auto e = exp_clamped(d, hn::Neg(x));
  const auto s = hn::Div(one, hn::Add(one, e));
  return hn::MulAdd(hn::Mul(x, s), hn::Mul(e, s), s);
}

// tanh(x): error at most 4 ulp. Uses an odd polynomial below 0.625, where 1 - 2 / (e^2x + 1) would
// cancel.
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

// erf(x): absolute error below 1.6e-7, relative error below 4 ulp. Uses an odd polynomial for |x|
// below 1; above 1, 1 - exp(q(|x|)), where q is a polynomial for log(erfc).
template <class D>
HWY_INLINE hn::Vec<D> erf_f32(D d, hn::Vec<D> x) {
  const auto t = hn::Mul(x, x);
  const auto limit = hn::Set(d, 4.f);  // erf(4) rounds to 1
  auto a = hn::Abs(x);
  a = hn::IfThenElse(hn::Gt(a, limit), limit, a);
  const auto small =
      hn::Mul(x, horner(d, t, 1.12837917f, -0.376126267f, 0.112835947f, -0.026854212f,
                        0.00518908742f, -0.000801686428f, 7.87587505e-05f));
  const auto q =
      horner(d, a, 0.00032013805f, -1.13023343f, -0.631826052f, -0.110080083f, 0.026421136f,
             -0.00475959629f, 0.000596805626f, -4.60580427e-05f, 1.63715142e-06f);
  const auto large = hn::Sub(hn::Set(d, 1.f), exp_nonpositive(d, q));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 1.f)), small, hn::CopySign(large, x));
}

// The tanh form of GELU: x s with s = (1 + tanh u) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715
// x^3). Uses the sigmoid, because 1 + tanh(u) cancels for negative u.
inline constexpr float kTwoSqrt2OverPi = 1.5957691216f;

template <class D>
HWY_INLINE hn::Vec<D> gelu_tanh(D d, hn::Vec<D> x) {
  const auto u2 = horner(d, hn::Mul(x, x), kTwoSqrt2OverPi, kTwoSqrt2OverPi * 0.044715f);
  return hn::Mul(x, sigmoid(d, hn::Mul(x, u2)));
}

// Derivative of the tanh form: s + x s (1 - s) d(2u)/dx. 1 - s is computed as e s, e = exp(-2u), so
// that it does not cancel.
template <class D>
HWY_INLINE hn::Vec<D> dgelu_tanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.f), t = hn::Mul(x, x);
  const auto u2 = horner(d, t, kTwoSqrt2OverPi, kTwoSqrt2OverPi * 0.044715f);
  const auto e = exp_clamped(d, hn::Neg(hn::Mul(x, u2)));
  const auto s = hn::Div(one, hn::Add(one, e));
  const auto du2 = horner(d, t, kTwoSqrt2OverPi, kTwoSqrt2OverPi * 3 * 0.044715f);
  // For large |x|, s (1 - s) is tiny and du2 huge; in this order no product overflows.
  return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Mul(e, s)), du2, s);
}

// The exact form of GELU: x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.
template <class D>
HWY_INLINE hn::Vec<D> normal_cdf(D d, hn::Vec<D> x) {
  const auto half = hn::Set(d, 0.5f);
  return hn::MulAdd(half, erf_f32(d, hn::Mul(x, hn::Set(d, 0.70710678f))), half);
}

template <class D>
HWY_INLINE hn::Vec<D> gelu_erf(D d, hn::Vec<D> x) {
  return hn::Mul(x, normal_cdf(d, x));
}

// Derivative of the exact form: Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
template <class D>
HWY_INLINE hn::Vec<D> dgelu_erf(D d, hn::Vec<D> x) {
  const auto density = exp_nonpositive(d, hn::Mul(hn::Set(d, -0.5f), hn::Mul(x, x)));
  return hn::MulAdd(hn::Mul(x, hn::Set(d, 0.39894228f)), density, normal_cdf(d, x));
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
