#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Elementwise ops of tensors, or of a tensor and a number. Shapes broadcast as in NumPy. Tensors
// may have any strides; the result is contiguous. Ops compute in f32
// (kernels/pointwise_functions-inl.h states the errors) and round once to the dtype of the first
// tensor; in an amp::Autocast scope to the wider dtype of the two. u8 tensors (masks, images) count
// as numbers: with a float tensor the result has the float dtype, otherwise f32. Only comparisons
// return u8. The gradient of a broadcast tensor is summed in f32. Throws ShapeError, DTypeError.
//
// add() and mul() of two tensors are in ops/elementwise.h, and broadcast too. Inside fused()
// (ops/fused.h) a chain of these ops is one kernel.

// Compute a + b, a - b, a * b and a / b.
Tensor add(const Tensor& a, float b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, float b);
Tensor sub(float a, const Tensor& b);
Tensor mul(const Tensor& a, float b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, float b);
Tensor div(float a, const Tensor& b);
// maximum() and minimum() propagate NaN. If a and b are equal, each gets half of the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, float b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, float b);
// x to the power `exponent`. Exponents 2, -1, 1/2 and -1/2 are computed by a product, a quotient
// and roots. Another exponent p is computed as e^(p log |x|), with a relative error of |p log x|
// 2^-23. Negative x supports only integer exponents.
Tensor pow(const Tensor& x, float exponent);

// Functions of one tensor.
Tensor neg(const Tensor& x);  // -x
Tensor abs(const Tensor& x);  // derivative 0 at 0
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor relu(const Tensor& x);   // derivative 0 at 0
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor silu(const Tensor& x);      // x sigmoid(x)
Tensor softplus(const Tensor& x);  // log(1 + e^x)
Tensor sin(const Tensor& x);       // returns NaN for |x| above 2^45
Tensor cos(const Tensor& x);
// x limited to [low, high]. The derivative is 1 where low <= x <= high, else 0.
Tensor clamp(const Tensor& x, float low, float high);

// Comparisons. They return 1 if true, else 0, as u8, and have no gradients. A NaN is neither less
// than nor equal to anything.
Tensor less(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, float b);
Tensor less(float a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, float b);
Tensor less_equal(float a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, float b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, float b);

// a where the condition is not 0, else b. condition: u8 or a float dtype; it gets no gradient.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, float b);
Tensor where(const Tensor& condition, float a, const Tensor& b);

// Operators as in NumPy: a * x + b, -x, x < 0. Comparisons are elementwise, also == and !=. To
// check whether two handles refer to one tensor, compare impl_ptr().
Tensor add(const Tensor& a, const Tensor& b);  // see ops/elementwise.h
Tensor mul(const Tensor& a, const Tensor& b);
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}
inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator+(const Tensor& a, float b) {
  return add(a, b);
}
inline Tensor operator+(float a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator-(const Tensor& a, float b) {
  return sub(a, b);
}
inline Tensor operator-(float a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator*(const Tensor& a, float b) {
  return mul(a, b);
}
inline Tensor operator*(float a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator/(const Tensor& a, float b) {
  return div(a, b);
}
inline Tensor operator/(float a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator<(const Tensor& a, const Tensor& b) {
  return less(a, b);
}
inline Tensor operator<(const Tensor& a, float b) {
  return less(a, b);
}
inline Tensor operator<(float a, const Tensor& b) {
  return less(a, b);
}
inline Tensor operator<=(const Tensor& a, const Tensor& b) {
  return less_equal(a, b);
}
inline Tensor operator<=(const Tensor& a, float b) {
  return less_equal(a, b);
}
inline Tensor operator<=(float a, const Tensor& b) {
  return less_equal(a, b);
}
inline Tensor operator>(const Tensor& a, const Tensor& b) {
  return less(b, a);
}
inline Tensor operator>(const Tensor& a, float b) {
  return less(b, a);
}
inline Tensor operator>(float a, const Tensor& b) {
  return less(b, a);
}
inline Tensor operator>=(const Tensor& a, const Tensor& b) {
  return less_equal(b, a);
}
inline Tensor operator>=(const Tensor& a, float b) {
  return less_equal(b, a);
}
inline Tensor operator>=(float a, const Tensor& b) {
  return less_equal(b, a);
}
inline Tensor operator==(const Tensor& a, const Tensor& b) {
  return equal(a, b);
}
inline Tensor operator==(const Tensor& a, float b) {
  return equal(a, b);
}
inline Tensor operator!=(const Tensor& a, const Tensor& b) {
  return not_equal(a, b);
}
inline Tensor operator!=(const Tensor& a, float b) {
  return not_equal(a, b);
}

}  // namespace shale
