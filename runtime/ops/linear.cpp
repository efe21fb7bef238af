#include "shale/runtime/ops/linear.h"

#include <array>

#include "shale/kernels/gemm.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/linear_fp8.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/row_gemm.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& residual) {
  check_contiguous("linear", "x", x);
  check_defined("linear", "weight", weight);
  if (x.ndim() < 1 || weight.ndim() != 2 || weight.size(1) != x.size(-1)) {
    throw ShapeError(cat("linear: ", argument_text("weight", weight), " is ", weight.shape(),
                         ", x is ", x.shape(), ", expected weight [N,K] and x [...,K]"));
  }
  check_dtype("linear", "weight", weight, x.dtype());
  check_same_device("linear", x, std::array{weight, bias, residual});
  if (bias.defined()) check_shape("linear", "bias", bias, {weight.size(0)});
  if (residual.defined()) {
    check_shape("linear", "residual", residual, with_last(x.shape(), weight.size(0)));
    check_contiguous("linear", "residual", residual);
  }
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
              Operands operands) {
  const bool is_fp8 = operands != Operands::kPlain;
  if (amp::wants_low({x, weight, bias})) {
    return amp::add_residual(
        linear(amp::to_low(x), amp::to_low(weight), amp::to_low(bias), {}, operands), residual);
  }
  if (amp::wants_low({residual})) {
    return amp::add_residual(linear(x, weight, bias, {}, operands), residual);
  }
  check_linear(x, weight, bias, residual);
  if (is_fp8) check_dtype("linear with fp8 operands", "x", x, DType::kBF16);
  const bool records = needs_grad(x.context(), {x, weight, bias, residual});
  // Saves tensors before the GEMM. If this segment is being recomputed, saving the last needed
  // tensor ends the run, so the GEMM is not computed.
  SavedTensor saved_x, saved_weight;
  Fp8Input fp8_x;
  if (records) saved_weight = {"linear", weight};
  if (is_fp8) {
    fp8_x = {operands, x, /*keeps=*/records && needs_grad(x.context(), {weight})};
  } else if (records) {
    saved_x = {"linear", x};
  }
  Tensor y = empty(x.context(), with_last(x.shape(), weight.size(0)), x.dtype());
  if (is_fp8) {
    fp8_x.multiply({weight, bias, residual}, y);
  } else {
    row_gemm(x, residual, y,
             {.b = transposed(as_matrix(weight)), .bias = bias.defined() ? bias.view() : View{}});
  }
  if (OpRecorder* to = recorder_of(y)) {
    to->add("linear", {x, weight, bias, residual}, {y}, {{"fp8", is_fp8}});
  }
  if (!records) return y;
  const auto backward = [x = saved_x, fp8_x, weight = saved_weight, bias, is_fp8,
                         shape = x.shape()](BackwardArgs& args) {
    Grads grads(4);
    const Tensor dy = args.dy();
    const View dy2 = as_matrix(dy);
    if (is_fp8) {
      fp8_x.emit_grads(args, weight, grads);
    } else {
      if (args.needs(0)) {
        Tensor dx = empty(dy.context(), shape, dy.dtype());
        kernels::gemm(dy.exec(), {.a = dy2, .b = weight.get().view(), .c = as_matrix(dx)});
        grads[0] = dx;
      }
      if (args.needs(1)) emit_weight_grad(args, 1, weight.get(), grads, dy, x.get());
    }
    emit_grad(args, {2, bias}, grads, [&](const Tensor& db, bool accumulate) {
      kernels::column_sum(dy.exec(), {.x = dy2, .y = db, .accumulate = accumulate});
    });
    if (args.needs(3)) grads[3] = dy;
    return grads;
  };
  record("linear", {x, weight, bias, residual}, {&y}, backward);
  return y;
}

}  // namespace shale
