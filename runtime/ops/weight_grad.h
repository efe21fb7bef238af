#pragma once

#include <functional>

#include "shale/runtime/ops/matrix.h"

namespace shale {

// Makes the gradient of a weight: multiply(destination, accumulate), as emit_grad() writes. It
// keeps what it uses.
using WeightProduct = std::function<void(const Tensor& dw, bool accumulate)>;

// The gradient of a weight, by any product, if anybody needs it. It may be left for later
// (autograd/deferred.h).
void emit_weight_grad(BackwardArgs& args, const GradOf& of, Grads& grads, WeightProduct multiply);

}  // namespace shale
