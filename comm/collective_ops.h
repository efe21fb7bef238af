#pragma once

#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Differentiable collectives. They differentiate the sum of the losses of all ranks: each rank
// calls backward() of its own loss, and all ranks make these calls in the same order. Inputs are
// contiguous, on the group's device, and must not change while a collective runs. `group` must
// outlive backward. Nothing is saved for backward.

// Joins x of all ranks along the first dimension: [n, ...] to [ranks * n, ...]. The gradient of x
// is reduce_scatter_sum of the result's gradient. Throws ShapeError for a scalar.
Tensor all_gather(ProcessGroup& group, const Tensor& x);
// Adds x over the ranks and returns slice rank() of the sum along its first dimension: [ranks * n,
// ...] to [n, ...]. The gradient of x is all_gather of the result's gradient. Throws ShapeError
// unless the number of ranks divides the first dimension.
Tensor reduce_scatter_sum(ProcessGroup& group, const Tensor& x);
// Returns the sum of x over ranks. The gradient of x is all_reduce_sum of the result's gradient.
Tensor all_reduce_sum(ProcessGroup& group, const Tensor& x);

}  // namespace shale::comm
