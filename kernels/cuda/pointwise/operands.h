#pragma once

#include "shale/kernels/pointwise.h"

namespace shale::kernels {

#include "shale/kernels/cuda/pointwise/operands_layout.h"

inline PointwiseOperands pointwise_operands(const PointwiseArgs& args) {
  const PointwiseDims plan(args);
  const auto is_aligned = [](const View& view) {
    return reinterpret_cast<uintptr_t>(view.data) % size_t(4 * dtype_size(view.dtype)) == 0;
  };
  PointwiseOperands operands{};
  operands.n = args.outputs[0].numel();
  operands.dims = plan.count;
  for (int d = 0; d < plan.count; ++d) operands.size[d] = plan.size[size_t(d)];
  for (int i = 0; i < args.program->inputs; ++i) {
    const View& x = args.inputs[size_t(i)];
    PointwiseInput& input = operands.inputs[i];
    input.data = x.data, input.dtype = x.dtype, input.dense = plan.dense[size_t(i)];
    input.packed = input.dense && is_aligned(x);
    for (int d = 0; d < plan.count; ++d) input.stride[d] = plan.stride[size_t(d)][size_t(i)];
  }
  for (int i = 0; i < args.program->outputs; ++i) {
    const View& y = args.outputs[size_t(i)];
    operands.outputs[i] = {.data = y.data, .dtype = y.dtype, .packed = is_aligned(y)};
  }
  return operands;
}

}  // namespace shale::kernels
