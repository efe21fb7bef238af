#include "shale/kernels/zero_one_adam.h"

#include "shale/kernels/check.h"
#include "shale/kernels/optim.h"

namespace shale::kernels {

void check_args(const ZeroOneAdamArgs& a) {
  constexpr const char* kOp = "zero_one_adam";
  const bool has_grad = a.step == ZeroOneStep::kShared || a.step == ZeroOneStep::kLocal;
  check_optim_span(kOp, a.master, has_grad ? a.grad : a.master, a.param);
  const Shape blocks = {(a.master.numel() + kWeightBlock - 1) / kWeightBlock};
  check_dense(kOp, "m", a.m, a.master.shape, DType::kF32);
  check_dense(kOp, "v", a.v, a.master.shape, DType::kF32);
  check_dense(kOp, "v_weight", a.v_weight, blocks, DType::kF32);
  if (a.step == ZeroOneStep::kShared) return;
  check_dense(kOp, "anchor", a.anchor, a.master.shape, DType::kF32);
  check_dense(kOp, "sum", a.sum, a.master.shape, DType::kF32);
  check_dense(kOp, "rates", a.rates, blocks, DType::kF32);
}

}  // namespace shale::kernels
