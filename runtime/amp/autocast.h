#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/tensor/context.h"

namespace shale::amp {

// While it lives, ops of the context pick the dtype they compute in, whatever dtype their inputs
// have, as in torch.autocast. Casts are recorded, so gradients arrive in the inputs' dtypes; the
// gradient of a weight stays f32 all the way. Regions nest; DType::kF32 switches one off.
//
//   computed in the region's dtype   linear, ffn, swiglu, attention, packed_attention, matmul,
//                                    linear_cross_entropy's product
//   computed in f32                  layer_norm, rms_norm and their stream_ forms, sum, mean,
//                                    column_sum, softmax, log_softmax, losses; max and min give f32
//   in the widest dtype of inputs    elementwise ops of two tensors, and the residual additions of
//                                    the ops above
//   as they come                     everything else; in particular cross_entropy_, whose kernel
//                                    computes in f32 from logits of any dtype
//
// A weight that is used several times is cast once, as long as an earlier use keeps the copy for
// its backward; copies are kept for nothing else. A model that trains in low precision throughout
// still does better with low-precision parameters and f32 masters (Precision), and regions for what
// deviates.
class Autocast {
 public:
  Autocast(Context& context, DType dtype);  // bf16, f16 or f32; else ConfigError
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Context& context_;
  DType before_;
};

}  // namespace shale::amp
