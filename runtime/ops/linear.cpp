#include "shale/runtime/ops/linear.h"

#include "shale/kernels/fp8.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"

namespace shale {
namespace {

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& residual) {
  check_contiguous("linear", "x", x);
  check_defined("linear", "weight", weight);
  if (x.ndim() < 1 || weight.ndim() != 2 || weight.size(1) != x.size(-1)) {
    throw ShapeError(cat("linear: ", argument_text("weight", weight), " is ", weight.shape(),
                         ", x is ", x.shape(), ", want weight [N,K] and x [...,K]"));
  }
  check_dtype("linear", "weight", weight, x.dtype());
  if (bias.defined()) check_shape("linear", "bias", bias, {weight.size(0)});
  if (residual.defined()) {
    check_shape("linear", "residual", residual, with_last(x.shape(), weight.size(0)));
    check_contiguous("linear", "residual", residual);
  }
}

struct Block {
  int64_t rows, columns;
};
constexpr Block kAcross = {1, kernels::kFp8Block};  // of what is summed over columns
constexpr Block kDown = {kernels::kFp8Block, 1};    // over rows
constexpr Block kSquare = {kernels::kFp8Block, kernels::kFp8Block};

// x as an operand, which a product reads instead of it.
Tensor operand(const Tensor& x, Operands operands, Block block) {
  if (operands == Operands::kPlain) return x;
  const Tensor rounded = empty(x.context(), x.shape(), x.dtype());
  kernels::round_to_fp8(x.exec(), {.x = as_matrix(x),
                                   .y = as_matrix(rounded),
                                   .block_rows = block.rows,
                                   .block_columns = block.columns});
  return rounded;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
              Operands operands) {
  if (amp::wants_low({x, weight, bias})) {
    return amp::add_residual(
        linear(amp::to_low(x), amp::to_low(weight), amp::to_low(bias), {}, operands), residual);
  }
  if (amp::wants_low({residual})) {
    return amp::add_residual(linear(x, weight, bias, {}, operands), residual);
  }
  check_linear(x, weight, bias, residual);
  const bool records = needs_grad(x.context(), {x, weight, bias, residual});
  // Saved before the product: a segment that runs again for these ends here.
  SavedTensor saved_x, saved_weight;
  if (records) saved_x = {"linear", x}, saved_weight = {"linear", weight};
  Tensor y = empty(x.context(), with_last(x.shape(), weight.size(0)), x.dtype());
  kernels::gemm(x.exec(), {.a = as_matrix(operand(x, operands, kAcross)),
                           .b = transposed(operand(weight, operands, kSquare)),
                           .c = as_matrix(y),
                           .bias = bias.defined() ? bias.view() : View{},
                           .residual = residual.defined() ? as_matrix(residual) : View{}});
  if (!records) return y;
  const auto backward = [x = saved_x, weight = saved_weight, bias, operands,
                         shape = x.shape()](BackwardArgs& args) {
    Grads grads(4);
    const Tensor dy = args.dy();
    const View dy2 = as_matrix(dy);
    if (args.needs(0)) {
      Tensor dx = empty(dy.context(), shape, dy.dtype());
      kernels::gemm(dy.exec(), {.a = as_matrix(operand(dy, operands, kAcross)),
                                .b = operand(weight.get(), operands, kSquare),
                                .c = as_matrix(dx)});
      grads[0] = dx;
    }
    if (args.needs(1)) {
      emit_weight_grad(args, 1, weight.get(), grads, operand(dy, operands, kDown),
                       operand(x.get(), operands, kDown));
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
