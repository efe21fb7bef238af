#pragma once

#include <initializer_list>

#include "shale/runtime/tensor/tensor.h"

// Casts of op inputs inside an amp::Autocast region.
namespace shale::amp {

// True if the op must cast its inputs first: a region is active, and one of the defined float
// tensors in x does not have the region's dtype (wants_f32(): f32).
bool wants_low(std::initializer_list<Tensor> x);
bool wants_f32(std::initializer_list<Tensor> x);
Tensor to_low(const Tensor& x);  // casts x; undefined tensors stay undefined
Tensor to_f32(const Tensor& x);
// Returns the dtype of a result of x: x's own dtype, or f32 if x is a mask (u8).
DType result_dtype(const Tensor& x);
// Returns the dtype of a result of a and b: a's, or in an autocast region the wider of the two. A
// mask's dtype counts only if both are masks.
DType result_dtype(const Tensor& a, const Tensor& b);
// Returns y + residual in the wider dtype of the two; y if residual is undefined.
Tensor add_residual(const Tensor& y, const Tensor& residual);

}  // namespace shale::amp
