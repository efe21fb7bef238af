#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/tensor/context.h"

namespace shale::amp {

// Scope in which the context's ops choose their compute dtype themselves, whatever the dtypes of
// their inputs, as in torch.autocast. Casts are recorded, so gradients arrive in the inputs'
// dtypes; the gradient of a weight stays f32 throughout. Scopes can be nested; an inner scope with
// DType::kF32 switches autocast off. The compute dtype is
//
// - the scope's dtype in linear, ffn, swiglu, attention, packed_attention, matmul, and in the GEMM
//   of linear_cross_entropy;
// - f32 in layer_norm, rms_norm and their stream_ forms, sum, mean, column_sum, softmax,
//   log_softmax and losses; also in max and min, which return f32;
// - the widest dtype of the inputs in elementwise ops of two tensors, and in the residual additions
//   of the ops above;
// - the dtype of the inputs in all other ops. This includes cross_entropy_, whose kernel computes
//   in f32 from logits of any dtype.
//
// A weight that is used several times is cast once if an earlier use keeps the copy for its
// backward; otherwise each use casts it. A model trained in low precision throughout is faster with
// low-precision parameters and f32 masters (Precision); use scopes for exceptions.
class Autocast {
 public:
  Autocast(Context& context, DType dtype);  // bf16, f16 or f32; throws ConfigError for others
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Context& context_;
  DType before_;
};

}  // namespace shale::amp
