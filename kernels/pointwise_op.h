#pragma once

// Includes nothing: kernels that are compiled when they are used (kernels/pointwise_source.h) get
// this file as text.

namespace shale::kernels {

// What a step of a pointwise program computes, in f32, of each element by itself. a, b, c are its
// arguments; comparisons give 1 or 0; NaN arguments of maximum, minimum, clamp and relu are passed
// on. The formulas are in kernels/pointwise_functions-inl.h, the derivatives in
// runtime/ops/pointwise_gradient.cpp.
enum class PointwiseOp : unsigned char {
  kLoad,      // an input's element
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
  kWhere,      // a is not 0 ? b : c
  kClamp,      // a, at least b, at most c
  kStore,      // writes a to an output
};

}  // namespace shale::kernels
