#pragma once

#include <functional>

#include "shale/runtime/ops/matrix.h"

namespace shale {

// Function that computes the gradient of a weight: multiply(destination, accumulate), as in
// emit_grad(). It must own the tensors that it uses.
using WeightProduct = std::function<void(const Tensor& dw, bool accumulate)>;

// Computes the gradient of a weight by calling `multiply`, if the gradient is needed. It may be
// deferred (autograd/deferred.h).
void emit_weight_grad(BackwardArgs& args, const GradOf& of, Grads& grads, WeightProduct multiply);

}  // namespace shale
