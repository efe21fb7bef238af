#pragma once

#include <functional>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Cuts the autograd graph between two parts of a model, such as pipeline stages.

// Starts a new graph at x: x looks like the result of an op. When a backward reaches x, it calls
// `arrived` with the gradient of x, in the dtype of x. No other tensor may use the history of x.
void begin_graph(Tensor& x, std::function<void(const Tensor& dx)> arrived);

// Returns a tensor with the shape, dtype and autograd history of x, but without its values.
// backward() can start from it after the values of x have been sent to the next stage and freed.
Tensor history_of(const Tensor& x);

}  // namespace shale
