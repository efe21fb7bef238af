// The formulas of pointwise ops, written once for all devices. F is a SIMD vector of f32 on the CPU
// and four f32 of a thread on GPUs. The formulas use only operations that IEEE 754 rounds the same
// way everywhere (+ - * /, square roots, fused multiply-adds, bit operations), so results have the
// same bits on all devices if the CPU has fused multiply-adds.
//
// This file is included inside the namespace of a device, which defines, for its F and the result M
// of a comparison:
//
//   operators + - * / of F, < <= == of two F; choose(M, F, F); is_nan(F)
//   like(F, float)           the number in all lanes
//   multiply_add(a, b, c)    a b + c, rounded once
//   square_root, absolute, with_sign_of(F magnitude, F sign)
//   shift_to_exponent(F)     its bits, shifted left by 23
//   split_exponent(x, m)     for a normal x > 0: x = m 2^result with m in [sqrt(1/2), sqrt(2))
//   reduce_quarters(x, q)    x - k pi/2, in [-pi/4, pi/4], and q = k mod 4; computed in f64
//
// Errors were measured against f64 (test/kernels/pointwise.cpp).

constexpr float kPlusInfinity = __builtin_bit_cast(float, 0x7f800000u);
constexpr float kQuietNan = __builtin_bit_cast(float, 0x7fc00000u);

template <class F>
__device__ __forceinline__ F polynomial(F x, float c0) {
  return like(x, c0);
}
// c0 + x (c1 + x (c2 + ...))
template <class F, class... Rest>
__device__ __forceinline__ F polynomial(F x, float c0, Rest... rest) {
  return multiply_add(x, polynomial(x, rest...), like(x, c0));
}

// 2^n for an integer n in [-126, 127]. Adding 1.5 2^23 leaves n + 127 in the low bits.
template <class F>
__device__ __forceinline__ F power_of_two(F n) {
  return shift_to_exponent(n + like(n, 0x1.8p23f + 127.f));
}

template <class F>
__device__ __forceinline__ F nearest_integer(F x) {  // for |x| < 2^22
  return (x + like(x, 0x1.8p23f)) - like(x, 0x1.8p23f);
}

// Error at most 2 ulp, including subnormal results. x = k ln 2 + r with |r| <= ln 2 / 2; ln 2 is
// split into two parts, the first so short that its product with k is exact.
template <class F>
__device__ __forceinline__ F exp_of(F x) {
  x = choose(x < like(x, -104.f), like(x, -104.f), x);
  x = choose(like(x, 89.f) < x, like(x, 89.f), x);
  const F k = nearest_integer(x * like(x, 0x1.715476p+0f));
  F r = multiply_add(k, like(x, -0x1.62e4p-1f), x);
  r = multiply_add(k, like(x, -0x1.7f7d1cp-20f), r);
  const F p = polynomial(r, 0.5f, 0.166665766f, 0.0416665541f, 0.00836324667f, 0.00139262681f);
  const F mantissa = multiply_add(r * r, p, r) + like(x, 1.f);
  // 2^k itself may be out of range, so two factors are used.
  const F half = nearest_integer(k * like(x, 0.5f));
  return mantissa * power_of_two(half) * power_of_two(k - half);
}

// Error at most 2 ulp. log(1 + f) is a polynomial; ln 2 is split into two parts, as in exp_of().
template <class F>
__device__ __forceinline__ F log_of(F x) {
  const F smallest = like(x, 0x1p-126f), zero = like(x, 0.f);
  const auto tiny = x < smallest;
  F m = x;
  F e = split_exponent(choose(tiny, x * like(x, 0x1p23f), x), m);
  e = e + choose(tiny, like(x, -23.f), zero);
  const F f = m - like(x, 1.f), f2 = f * f;
  const F p = polynomial(f, 3.3333331174e-1f, -2.4999993993e-1f, 2.0000714765e-1f,
                         -1.6668057665e-1f, 1.4249322787e-1f, -1.2420140846e-1f, 1.1676998740e-1f,
                         -1.1514610310e-1f, 7.0376836292e-2f);
  F y = multiply_add(e, like(x, -2.12194440e-4f), f * f2 * p);
  y = multiply_add(f2, like(x, -0.5f), y);
  y = multiply_add(e, like(x, 0.693359375f), f + y);
  y = choose(x == like(x, kPlusInfinity), x, y);
  y = choose(x == zero, like(x, -kPlusInfinity), y);
  y = choose(x < zero, like(x, kQuietNan), y);
  return choose(is_nan(x), x, y);
}

// Error at most 4 ulp.
template <class F>
__device__ __forceinline__ F sigmoid_of(F x) {
  const F one = like(x, 1.f);
  return one / (one + exp_of(like(x, 0.f) - x));
}

// Error at most 4 ulp. Uses an odd polynomial below 0.625, where 1 - 2 / (e^2x + 1) would cancel.
template <class F>
__device__ __forceinline__ F tanh_of(F x) {
  const F a = absolute(x), t = x * x, one = like(x, 1.f);
  const F p = polynomial(t, -0.333333332f, 0.133333036f, -0.0539592596f, 0.0217689187f,
                         -0.00834394566f, 0.00229274494f);
  const F small = multiply_add(x * t, p, x);
  const F large = one - like(x, 2.f) / (exp_of(a + a) + one);
  const F y = choose(a < like(x, 0.625f), small, with_sign_of(large, x));
  return choose(is_nan(x), x, y);
}

// Computes log(1 + e^x) as max(x, 0) + log(u) with u = 1 + e^-|x|. The last term adds back what
// rounding u has lost.
template <class F>
__device__ __forceinline__ F softplus_of(F x) {
  const F zero = like(x, 0.f), one = like(x, 1.f);
  const F e = exp_of(zero - absolute(x)), u = one + e;
  return choose(zero < x, x, zero) + (log_of(u) + (e - (u - one)) / u);
}

// Error at most 2 ulp for |x| <= 2^45. For larger |x|, neighbouring floats are many turns apart,
// and the result is NaN. quarters: 0 for the sine, 1 for the cosine.
template <class F>
__device__ __forceinline__ F sine_of(F x, float quarters) {
  F k = x;
  const F r = reduce_quarters(x, k), t = r * r;
  F q = k + like(x, quarters);
  q = choose(like(x, 3.5f) < q, q - like(x, 4.f), q);
  const F sine =
      multiply_add(r * t, polynomial(t, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f), r);
  const F cosine = multiply_add(
      t * t, polynomial(t, 4.166664568298827e-2f, -1.388731625493765e-3f, 2.443315711809948e-5f),
      multiply_add(t, like(x, -0.5f), like(x, 1.f)));
  const auto second = like(x, 1.5f) < q;
  const F odd = choose(second, q - like(x, 2.f), q);
  const F y = choose(like(x, 0.5f) < odd, cosine, sine);
  const F with_sign = choose(second, like(x, 0.f) - y, y);
  return choose(absolute(x) <= like(x, 0x1p45f), with_sign, like(x, kQuietNan));
}

// Computes e^(p log |x|). If p log |x| is about 2^b, the result loses b bits of precision. A
// negative x gives a number only if p is an integer.
template <class F>
__device__ __forceinline__ F pow_of(F x, F p) {
  const F zero = like(x, 0.f), one = like(x, 1.f), nan = like(x, kQuietNan);
  const F y = exp_of(p * log_of(absolute(x)));
  const F half = p * like(x, 0.5f);
  const F odd = choose(nearest_integer(half) == half, y, zero - y);
  const F of_negative = choose(nearest_integer(p) == p, odd, nan);
  return choose(p == zero, one, choose(x < zero, of_negative, y));
}

template <class F>
__device__ __forceinline__ F larger_of(F a, F b) {
  return choose(b < a, a, choose(is_nan(a), a, b));
}
template <class F>
__device__ __forceinline__ F smaller_of(F a, F b) {
  return choose(a < b, a, choose(is_nan(a), a, b));
}

// Computes op(a, b, c) for the ops that are arithmetic, which excludes loads, constants and stores.
template <class F>
__device__ __forceinline__ F apply(PointwiseOp op, F a, F b, F c) {
  const F zero = like(a, 0.f), one = like(a, 1.f);
  switch (op) {
    case PointwiseOp::kAdd: return a + b;
    case PointwiseOp::kSub: return a - b;
    case PointwiseOp::kMul: return a * b;
    case PointwiseOp::kDiv: return a / b;
    case PointwiseOp::kMaximum: return larger_of(a, b);
    case PointwiseOp::kMinimum: return smaller_of(a, b);
    case PointwiseOp::kPow: return pow_of(a, b);
    case PointwiseOp::kNeg: return like(a, -0.f) - a;
    case PointwiseOp::kAbs: return absolute(a);
    case PointwiseOp::kExp: return exp_of(a);
    case PointwiseOp::kLog: return log_of(a);
    case PointwiseOp::kSqrt: return square_root(a);
    case PointwiseOp::kRsqrt: return one / square_root(a);
    case PointwiseOp::kRelu: return choose(a <= zero, zero, a);
    case PointwiseOp::kSigmoid: return sigmoid_of(a);
    case PointwiseOp::kTanh: return tanh_of(a);
    case PointwiseOp::kSilu: return a / (one + exp_of(zero - a));
    case PointwiseOp::kSoftplus: return softplus_of(a);
    case PointwiseOp::kSin: return sine_of(a, 0.f);
    case PointwiseOp::kCos: return sine_of(a, 1.f);
    case PointwiseOp::kLess: return choose(a < b, one, zero);
    case PointwiseOp::kLessEqual: return choose(a <= b, one, zero);
    case PointwiseOp::kEqual: return choose(a == b, one, zero);
    case PointwiseOp::kWhere: return choose(a == zero, c, b);
    case PointwiseOp::kClamp: return smaller_of(larger_of(a, b), c);
    default: return a;
  }
}
