#include "shale/kernels/optim.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Checks the span of a bf16 parameter that has no f32 master copy.
void check_rounded_span(const char* op, const AdamWArgs& a) {
  check_contiguous(op, "master", a.master);
  check_shape(op, "grad", a.grad, a.master.shape);
  check_dtype(op, "grad", a.grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", a.grad);
  if (a.param.defined()) {
    throw DTypeError(cat(op, ": master is ", a.master, ", expected fp32 when a param is given"));
  }
  const int64_t first = a.rounding.first, end = first + a.master.numel();
  if (first >= 0 && end <= int64_t{1} << 34) return;
  throw ShapeError(cat(op, ": master has the elements ", first, " to ", end - 1,
                       " of its parameter, expected elements within 0 to 2^34 - 1"));
}

}  // namespace

void check_args(const AdamWArgs& a) {
  if (a.master.dtype == DType::kBF16) {
    check_rounded_span("adamw", a);
  } else {
    check_optim_span("adamw", a.master, a.grad, a.param);
  }
  check_dtype("adamw", "m", a.m, {DType::kF32, DType::kBF16});
  check_dense("adamw", "m", a.m, a.master.shape, a.m.dtype);
  check_dense("adamw", "v", a.v, a.master.shape, a.m.dtype);
}

void check_args(const AdamW8bitArgs& a) {
  constexpr const char* kOp = "adamw_8bit";
  check_optim_span(kOp, a.master, a.grad, a.param);
  check_dense(kOp, "m", a.m, a.master.shape, DType::kU8);
  check_dense(kOp, "v", a.v, a.master.shape, DType::kU8);
  const Shape scales = {(a.master.numel() + kMomentBlock - 1) / kMomentBlock};
  check_dense(kOp, "m_scale", a.m_scale, scales, DType::kF32);
  check_dense(kOp, "v_scale", a.v_scale, scales, DType::kF32);
}

void check_args(const LionArgs& a) {
  check_optim_span("lion", a.master, a.grad, a.param);
  check_dtype("lion", "m", a.m, {DType::kF32, DType::kBF16});
  check_dense("lion", "m", a.m, a.master.shape, a.m.dtype);
}

void check_args(const SgdArgs& a) {
  check_optim_span("sgd", a.master, a.grad, a.param);
  if (a.m.defined()) check_dense("sgd", "m", a.m, a.master.shape, DType::kF32);
}

void check_args(const WeightAverageArgs& a) {
  check_dense("weight_average", "master", a.master, {a.master.numel()}, DType::kF32);
  check_dense("weight_average", "average", a.average, a.master.shape, DType::kF32);
}

}  // namespace shale::kernels
