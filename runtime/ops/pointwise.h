#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Elementwise ops, of tensors or of a tensor and a number. Shapes are broadcast: aligned at their
// last dimension, sizes are alike or one of them is 1, or missing. Tensors may have any strides;
// the result is contiguous. Computed in f32 (kernels/pointwise_functions-inl.h has the errors),
// rounded once to the dtype of the first tensor, in a region of amp::Autocast to the wider of the
// two. A mask or an image (u8) counts as numbers: with a float tensor the result has that one's
// dtype, without one it is f32. Comparisons alone make u8. The gradient of a tensor that was
// broadcast is added up in f32. Throws ShapeError, DTypeError.
//
// add() and mul() of tensors are in ops/elementwise.h, and broadcast too. A chain of these ops is
// one kernel inside fused() (ops/fused.h).

// a + b, a - b, a * b, a / b.
Tensor add(const Tensor& a, float b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, float b);
Tensor sub(float a, const Tensor& b);
Tensor mul(const Tensor& a, float b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, float b);
Tensor div(float a, const Tensor& b);
// A NaN is passed on. Where a and b are equal, each gets half of the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, float b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, float b);
// x to a power. 2, -1, 1/2 and -1/2 are a product, a quotient and roots; other powers p are
// e^(p log |x|), whose relative error is |p log x| 2^-23. A negative x has whole powers alone.
Tensor pow(const Tensor& x, float exponent);

// Functions of each element.
Tensor neg(const Tensor& x);  // -x
Tensor abs(const Tensor& x);  // its slope at 0 is 0
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor relu(const Tensor& x);   // its slope at 0 is 0
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor silu(const Tensor& x);      // x sigmoid(x)
Tensor softplus(const Tensor& x);  // log(1 + e^x)
Tensor sin(const Tensor& x);       // NaN beyond 2^45
Tensor cos(const Tensor& x);
// x, at least `low` and at most `high`; the slope is 1 where low <= x <= high, and 0 elsewhere.
Tensor clamp(const Tensor& x, float low, float high);

// 1 where it holds and 0 elsewhere, u8; without gradients. A NaN is neither less than nor equal to
// anything.
Tensor less(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, float b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, float b);
Tensor equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, float b);

// a where the condition is not 0, b elsewhere. condition: u8 or a float dtype, without gradient.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, float b);
Tensor where(const Tensor& condition, float a, const Tensor& b);

}  // namespace shale
