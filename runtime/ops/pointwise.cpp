#include "shale/runtime/ops/pointwise.h"

#include <utility>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/pointwise_internal.h"

namespace shale {
namespace {

using kernels::PointwiseOp;

Tensor binary(PointwiseOp op, const Tensor& a, const PointwiseOperand& b) {
  check_defined(kernels::name_of(op), "a", a);
  if (!b.tensor.defined()) return pointwise(op, amp::result_dtype(a), {a, b});
  return pointwise(op, amp::result_dtype(a, b.tensor), {a, b});
}

Tensor binary(PointwiseOp op, const Tensor& a, const Tensor& b) {
  check_defined(kernels::name_of(op), "b", b);
  return binary(op, a, PointwiseOperand(b));
}

Tensor unary(PointwiseOp op, const Tensor& x) {
  check_defined(kernels::name_of(op), "x", x);
  return pointwise(op, amp::result_dtype(x), {x});
}

Tensor compare(PointwiseOp op, const Tensor& a, const PointwiseOperand& b) {
  check_defined(kernels::name_of(op), "a", a);
  return pointwise(op, DType::kU8, {a, b});
}

Tensor compare(PointwiseOp op, float a, const Tensor& b) {
  check_defined(kernels::name_of(op), "b", b);
  return pointwise(op, DType::kU8, {a, b});
}

}  // namespace

Tensor add(const Tensor& a, float b) {
  return binary(PointwiseOp::kAdd, a, b);
}
Tensor sub(const Tensor& a, const Tensor& b) {
  return binary(PointwiseOp::kSub, a, b);
}
Tensor sub(const Tensor& a, float b) {
  return binary(PointwiseOp::kSub, a, b);
}
Tensor sub(float a, const Tensor& b) {
  check_defined("sub", "b", b);
  return pointwise(PointwiseOp::kSub, amp::result_dtype(b), {a, b});
}
Tensor mul(const Tensor& a, float b) {
  return binary(PointwiseOp::kMul, a, b);
}
Tensor div(const Tensor& a, const Tensor& b) {
  return binary(PointwiseOp::kDiv, a, b);
}
Tensor div(const Tensor& a, float b) {
  return binary(PointwiseOp::kDiv, a, b);
}
Tensor div(float a, const Tensor& b) {
  check_defined("div", "b", b);
  return pointwise(PointwiseOp::kDiv, amp::result_dtype(b), {a, b});
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return binary(PointwiseOp::kMaximum, a, b);
}
Tensor maximum(const Tensor& a, float b) {
  return binary(PointwiseOp::kMaximum, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return binary(PointwiseOp::kMinimum, a, b);
}
Tensor minimum(const Tensor& a, float b) {
  return binary(PointwiseOp::kMinimum, a, b);
}

Tensor pow(const Tensor& x, float exponent) {
  check_defined("pow", "x", x);
  if (exponent == 2) return binary(PointwiseOp::kMul, x, x);
  if (exponent == -1) return div(1.f, x);
  if (exponent == 0.5f) return sqrt(x);
  if (exponent == -0.5f) return rsqrt(x);
  return binary(PointwiseOp::kPow, x, exponent);
}

Tensor neg(const Tensor& x) {
  return unary(PointwiseOp::kNeg, x);
}
Tensor abs(const Tensor& x) {
  return unary(PointwiseOp::kAbs, x);
}
Tensor exp(const Tensor& x) {
  return unary(PointwiseOp::kExp, x);
}
Tensor log(const Tensor& x) {
  return unary(PointwiseOp::kLog, x);
}
Tensor sqrt(const Tensor& x) {
  return unary(PointwiseOp::kSqrt, x);
}
Tensor rsqrt(const Tensor& x) {
  return unary(PointwiseOp::kRsqrt, x);
}
Tensor relu(const Tensor& x) {
  return unary(PointwiseOp::kRelu, x);
}
Tensor sigmoid(const Tensor& x) {
  return unary(PointwiseOp::kSigmoid, x);
}
Tensor tanh(const Tensor& x) {
  return unary(PointwiseOp::kTanh, x);
}
Tensor silu(const Tensor& x) {
  return unary(PointwiseOp::kSilu, x);
}
Tensor softplus(const Tensor& x) {
  return unary(PointwiseOp::kSoftplus, x);
}
Tensor sin(const Tensor& x) {
  return unary(PointwiseOp::kSin, x);
}
Tensor cos(const Tensor& x) {
  return unary(PointwiseOp::kCos, x);
}

Tensor clamp(const Tensor& x, float low, float high) {
  check_defined("clamp", "x", x);
  if (!(low <= high))
    throw ShapeError(cat("clamp: low is ", low, ", expected at most high, ", high));
  return pointwise(PointwiseOp::kClamp, amp::result_dtype(x), {x, low, high});
}

Tensor less(const Tensor& a, const Tensor& b) {
  check_defined("less", "b", b);
  return compare(PointwiseOp::kLess, a, b);
}
Tensor less(const Tensor& a, float b) {
  return compare(PointwiseOp::kLess, a, b);
}
Tensor less(float a, const Tensor& b) {
  return compare(PointwiseOp::kLess, a, b);
}
Tensor less_equal(const Tensor& a, const Tensor& b) {
  check_defined("less_equal", "b", b);
  return compare(PointwiseOp::kLessEqual, a, b);
}
Tensor less_equal(const Tensor& a, float b) {
  return compare(PointwiseOp::kLessEqual, a, b);
}
Tensor less_equal(float a, const Tensor& b) {
  return compare(PointwiseOp::kLessEqual, a, b);
}
Tensor equal(const Tensor& a, const Tensor& b) {
  check_defined("equal", "b", b);
  return compare(PointwiseOp::kEqual, a, b);
}
Tensor equal(const Tensor& a, float b) {
  return compare(PointwiseOp::kEqual, a, b);
}
Tensor not_equal(const Tensor& a, const Tensor& b) {
  return equal(equal(a, b), 0.f);
}
Tensor not_equal(const Tensor& a, float b) {
  return equal(equal(a, b), 0.f);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  for (const auto& [name, x] : {std::pair{"condition", &condition}, {"a", &a}, {"b", &b}}) {
    check_defined("where", name, *x);
  }
  return pointwise(PointwiseOp::kWhere, amp::result_dtype(a, b), {condition, a, b});
}
Tensor where(const Tensor& condition, const Tensor& a, float b) {
  check_defined("where", "condition", condition);
  check_defined("where", "a", a);
  return pointwise(PointwiseOp::kWhere, amp::result_dtype(a), {condition, a, b});
}
Tensor where(const Tensor& condition, float a, const Tensor& b) {
  check_defined("where", "condition", condition);
  check_defined("where", "b", b);
  return pointwise(PointwiseOp::kWhere, amp::result_dtype(b), {condition, a, b});
}

}  // namespace shale
