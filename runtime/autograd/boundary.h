#pragma once

#include <functional>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Cuts the autograd graph between two parts of a model, such as pipeline stages.

// Makes x look like the result of an op to this part's ops. `arrived` is called with its gradient,
// in its dtype, when a backward has computed it. x must have no history that another tensor uses.
void begin_graph(Tensor& x, std::function<void(const Tensor& dx)> arrived);

// The history of a tensor without its values. backward() can start from it after the values have
// been sent to the next part.
Tensor history_of(const Tensor& x);

}  // namespace shale
