#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/tensor/context.h"

namespace shale::amp {

// Scope in which ops of the context choose their compute dtype independent of their inputs' dtypes,
// as in torch.autocast. Casts are recorded, so gradients arrive in the inputs' dtypes; the
// gradient of a weight stays f32 throughout. Regions nest; DType::kF32 switches autocast off.
//
//   in the region's dtype       linear, ffn, swiglu, attention, packed_attention, matmul,
//                               the GEMM of linear_cross_entropy
//   in f32                      layer_norm, rms_norm and their stream_ forms, sum, mean,
//                               column_sum, softmax, log_softmax, losses; max and min return f32
//   in the inputs' widest dtype elementwise ops of two tensors, and the residual additions of
//                               the ops above
//   in the inputs' dtype        everything else, also cross_entropy_, whose kernel computes in
//                               f32 from logits of any dtype
//
// A weight that is used several times is cast once, provided that an earlier use keeps the copy for
// its backward; otherwise copies are not kept. A model trained in low precision throughout is
// faster with low-precision parameters and f32 masters (Precision); use regions for the exceptions.
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
