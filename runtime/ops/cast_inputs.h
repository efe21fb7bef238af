#pragma once

#include <initializer_list>

#include "shale/runtime/tensor/tensor.h"

// Casts of what ops are given inside a region of amp::Autocast.
namespace shale::amp {

// Whether the op has to cast before it computes: a region is on, and one of the defined float
// tensors among x is not of its dtype (of f32).
bool wants_low(std::initializer_list<Tensor> x);
bool wants_f32(std::initializer_list<Tensor> x);
Tensor to_low(const Tensor& x);  // undefined ones pass
Tensor to_f32(const Tensor& x);
// The dtype of a result of x: its own; of a mask (u8) f32.
DType result_dtype(const Tensor& x);
// Of a and b: a's, or in a region the wider of the two. Masks count only if both are.
DType result_dtype(const Tensor& a, const Tensor& b);
// y + residual, in the wider dtype; y if there is no residual.
Tensor add_residual(const Tensor& y, const Tensor& residual);

}  // namespace shale::amp
