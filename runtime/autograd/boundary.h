#pragma once

#include <functional>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Where the graph of one part of a model ends and that of the next begins, as between the stages of
// a pipeline.

// x, which ops of this part take for the result of an op: `arrived` is called with its gradient, in
// its dtype, when a backward has made it. x: nobody else holds a history of it.
void begin_graph(Tensor& x, std::function<void(const Tensor& dx)> arrived);

// The history of a tensor without its values: what backward() begins with once they have been
// passed on.
Tensor history_of(const Tensor& x);

}  // namespace shale
