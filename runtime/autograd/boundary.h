#pragma once

#include <functional>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Cuts the autograd graph between two parts of a model, such as pipeline stages.

// Makes x look like the result of an op to this part's ops. A backward calls `arrived` with
// the gradient of x, in the dtype of x. No other tensor may use the history of x.
void begin_graph(Tensor& x, std::function<void(const Tensor& dx)> arrived);

// The history of a tensor without its values. backward() can start from it after the values have
// been sent to the next part.
Tensor history_of(const Tensor& x);

}  // namespace shale
