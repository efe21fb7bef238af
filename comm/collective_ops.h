#pragma once

#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Collectives that gradients go back through. What is differentiated is the sum of the losses of
// all ranks: each calls backward() of its own, all in the same order. Inputs are contiguous, on the
// group's device, and stay as they are. `group` must outlive backward. Nothing is kept for it.

// x of all ranks, joined along the first dimension: [n, ...] to [ranks * n, ...]. Its gradient is
// reduce_scatter_sum of the output's. Throws ShapeError for a scalar.
Tensor all_gather(ProcessGroup& group, const Tensor& x);
// Slice rank() of the sum over ranks, cut along the first dimension: [ranks * n, ...] to [n, ...].
// Its gradient is all_gather of the output's. Throws ShapeError if the ranks do not divide the
// first dimension.
Tensor reduce_scatter_sum(ProcessGroup& group, const Tensor& x);
// The sum over ranks, of any shape. Its gradient is all_reduce_sum of the output's.
Tensor all_reduce_sum(ProcessGroup& group, const Tensor& x);

}  // namespace shale::comm
