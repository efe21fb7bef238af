#pragma once

#include <initializer_list>

#include "shale/runtime/tensor/tensor.h"

// Casts of op inputs inside an amp::Autocast scope.
namespace shale::amp {

// True if an Autocast scope is active, and one of the defined float tensors in x does not have the
// scope's dtype (wants_f32(): does not have f32). The op must then cast its inputs.
bool wants_low(std::initializer_list<Tensor> x);
bool wants_f32(std::initializer_list<Tensor> x);
Tensor to_low(const Tensor& x);  // returns x in the scope's dtype; undefined tensors stay undefined
Tensor to_f32(const Tensor& x);
// Returns the dtype of a result of x: x's own dtype, or f32 if x is a mask (u8).
DType result_dtype(const Tensor& x);
// Returns the dtype of an op's result from inputs a and b: the dtype of a, or in an Autocast scope
// the wider of the two. If one of them is a mask (u8), returns the other's dtype; if both are, f32.
DType result_dtype(const Tensor& a, const Tensor& b);
// Returns y + residual in the wider dtype of the two; y if residual is undefined.
Tensor add_residual(const Tensor& y, const Tensor& residual);

}  // namespace shale::amp
