#pragma once

#include <functional>

#include "shale/runtime/ops/matrix.h"

namespace shale {

// Computes the gradient of a weight: multiply(destination, accumulate), as in emit_grad(). The
// function must own its tensors.
using WeightProduct = std::function<void(const Tensor& dw, bool accumulate)>;

// Gradient of a weight, computed by `multiply` if it is needed. It may be deferred
// (autograd/deferred.h).
void emit_weight_grad(BackwardArgs& args, const GradOf& of, Grads& grads, WeightProduct multiply);

}  // namespace shale
