#pragma once

// Must not include anything: kernels that are compiled at run time (kernels/pointwise_source.h) use
// this file as text.

namespace shale::kernels {

// The operation of a step of a pointwise program, in f32, elementwise. a, b, c are its arguments.
// Comparisons give 1 or 0; maximum, minimum, clamp and relu propagate NaN. The formulas are in
// kernels/pointwise_functions-inl.h, the derivatives in runtime/ops/pointwise_gradient.cpp.
enum class PointwiseOp : unsigned char {
  kLoad,      // an element of an input
  kConstant,  // a number
  kConvert,   // a, rounded to the step's dtype
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPow,  // a to the power of b
  kNeg,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,  // 1 / sqrt(a)
  kRelu,
  kSigmoid,  // 1 / (1 + e^-a)
  kTanh,
  kSilu,      // a sigmoid(a)
  kSoftplus,  // log(1 + e^a)
  kSin,
  kCos,
  kLess,       // a < b
  kLessEqual,  // a <= b
  kEqual,      // a == b
  kWhere,      // a != 0 ? b : c
  kClamp,      // a, limited to [b, c]
  kStore,      // writes a to an output
};

}  // namespace shale::kernels
