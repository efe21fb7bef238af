#include "shale/runtime/ops/softmax.h"

#include "shale/kernels/softmax.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

Tensor softmax_along(const char* op, const Tensor& x, int dim, bool log) {
  dim = dim_index(op, x, dim);
  if (amp::wants_f32({x})) return softmax_along(op, amp::to_f32(x), dim, log);
  if (dim != x.ndim() - 1) {
    const Tensor y = softmax_along(op, contiguous(transpose(x, dim, -1)), -1, log);
    return contiguous(transpose(y, dim, -1));
  }
  if (!x.contiguous()) return softmax_along(op, contiguous(x), dim, log);
  Tensor y = empty_like(x);
  kernels::softmax_fwd(x.exec(), {.x = as_matrix(x), .y = as_matrix(y), .log = log});
  if (OpRecorder* to = recorder_of(y)) to->add(op, {x}, {y});
  if (!needs_grad(x.context(), {x})) return y;
  record(op, {x}, {&y}, [y = SavedTensor(op, y), log](BackwardArgs& args) {
    const Tensor dy = contiguous(args.dy());
    Tensor dx = empty_like(dy);
    kernels::softmax_bwd(
        dy.exec(), {.y = as_matrix(y.get()), .dy = as_matrix(dy), .dx = as_matrix(dx), .log = log});
    return Grads{dx};
  });
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
  return softmax_along("softmax", x, dim, false);
}

Tensor log_softmax(const Tensor& x, int dim) {
  return softmax_along("log_softmax", x, dim, true);
}

}  // namespace shale
