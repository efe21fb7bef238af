#pragma once

#include <initializer_list>

#include "runtime/tensor/tensor.h"

namespace shale::amp {

// While it lives, ops of the context pick the dtype they compute in, whatever dtype their inputs
// have, as in torch.autocast. Casts are recorded, so gradients arrive in the inputs' dtypes; the
// gradient of a weight stays f32 all the way. Regions nest; DType::kF32 switches one off.
//
//   computed in the region's dtype   linear, ffn, swiglu, attention, packed_attention,
//                                    linear_cross_entropy's product
//   computed in f32                  layer_norm, rms_norm and their stream_ forms, sum, mean,
//                                    column_sum
//   in the widest dtype of inputs    add, mul, and the residual additions of the ops above
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

// ---- For ops ----

// Whether the op has to cast before it computes: a region is on, and one of the defined float
// tensors among x is not of its dtype (of f32).
bool wants_low(std::initializer_list<Tensor> x);
bool wants_f32(std::initializer_list<Tensor> x);
Tensor to_low(const Tensor& x);  // undefined ones pass
Tensor to_f32(const Tensor& x);
// The dtype of a result of a and b: a's, or in a region the wider of the two.
DType result_dtype(const Tensor& a, const Tensor& b);
// y + residual, in the wider dtype; y if there is no residual.
Tensor add_residual(const Tensor& y, const Tensor& residual);

}  // namespace shale::amp
