#include "shale/runtime/ops/linear_fp8.h"

#include "shale/kernels/fp8.h"
#include "shale/runtime/ops/weight_grad.h"

namespace shale {
namespace {

using kernels::Fp8Blocks;
using kernels::Fp8Format;
using Kind = Fp8Tensor::Kind;

// Of a recipe, what each tensor becomes.
struct Fp8Recipe {
  Kind x, weight, dy;
};
Fp8Recipe recipe_of(Operands operands) {
  const Kind weight = {fp8_weight_blocks(operands)};
  if (operands == Operands::kFp8Tensor) {
    return {{Fp8Blocks::kTensor}, weight, {Fp8Blocks::kTensor, Fp8Format::kE5M2}};
  }
  return {{Fp8Blocks::kLines}, weight, {Fp8Blocks::kLines}};
}

// x, seen as a matrix, and its transpose, as far as they are wanted.
struct Wanted {
  bool rows = false, columns = false;
};
struct Quantized {
  Fp8Tensor rows, columns;
};
Quantized quantized(const Tensor& x, const Kind& kind, const Wanted& wanted) {
  const View matrix = as_matrix(x);
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  Quantized result;
  if (wanted.rows) result.rows = Fp8Tensor::make(x.context(), rows, columns, kind);
  if (wanted.columns) result.columns = Fp8Tensor::make(x.context(), columns, rows, kind);
  kernels::quantize_fp8(
      x.exec(), {.x = matrix, .rows = result.rows.operand(), .columns = result.columns.operand()});
  return result;
}

}  // namespace

Fp8Blocks fp8_weight_blocks(Operands operands) {
  return operands == Operands::kFp8Tensor ? Fp8Blocks::kTensor : Fp8Blocks::kSquares;
}

Fp8Tensor Fp8Tensor::make(Context& context, int64_t lines, int64_t length, const Kind& kind) {
  return {
      .codes = empty(context, {lines, kernels::fp8_codes_stride(length)}, DType::kU8),
      .scales = empty(context, {kernels::fp8_scale_rows(length), kernels::fp8_scales_stride(lines)},
                      DType::kF32),
      .kind = kind,
      .lines = lines,
      .length = length};
}

kernels::Fp8Operand Fp8Tensor::operand() const {
  if (!codes.defined()) return {};
  kernels::Fp8Operand operand = {
      .codes = codes.view(), .scales = scales.view(), .blocks = kind.blocks, .format = kind.format};
  operand.codes.shape = {lines, length};
  operand.scales.shape = {kernels::fp8_scale_rows(length), lines};
  return operand;
}

Fp8Input::Fp8Input(Operands operands, const Tensor& x, bool keeps) : operands_(operands) {
  const bool transposes = keeps && !has_recipe(x);
  if (keeps && !transposes) x_ = {"linear", x};
  Quantized both = quantized(x, recipe_of(operands).x, {.rows = true, .columns = transposes});
  rows_ = both.rows;
  if (!transposes) return;
  codes_ = {"linear", both.columns.codes};
  scales_ = {"linear", both.columns.scales};
  transpose_ = both.columns;
  transpose_.codes = transpose_.scales = Tensor();
}

void Fp8Input::multiply(const LinearInputs& inputs, const Tensor& y) {
  const auto& [weight, bias, residual] = inputs;
  const Fp8Tensor b = quantized(weight, recipe_of(operands_).weight, {.rows = true}).rows;
  kernels::fp8_gemm(y.exec(), {.a = rows_.operand(),
                               .b = b.operand(),
                               .c = as_matrix(y),
                               .bias = bias.defined() ? bias.view() : View{},
                               .residual = residual.defined() ? as_matrix(residual) : View{}});
  rows_ = {};
}

Fp8Tensor Fp8Input::transpose() const {
  if (x_.defined()) {
    return quantized(x_.get(), recipe_of(operands_).x, {.columns = true}).columns;
  }
  Fp8Tensor result = transpose_;
  result.codes = codes_.get();
  result.scales = scales_.get();
  return result;
}

void Fp8Input::emit_grads(BackwardArgs& args, const SavedTensor& weight, Grads& grads) const {
  if (!args.needs(0) && !args.needs(1)) return;
  const Fp8Recipe recipe = recipe_of(operands_);
  const Tensor dy = args.dy();
  const Quantized from =
      quantized(dy, recipe.dy, {.rows = args.needs(0), .columns = args.needs(1)});
  if (args.needs(0)) {
    const Tensor values = weight.get();
    const Fp8Tensor b = quantized(values, recipe.weight, {.columns = true}).columns;
    Tensor dx = empty(dy.context(), with_last(dy.shape(), values.size(1)), dy.dtype());
    kernels::fp8_gemm(dy.exec(), {.a = from.rows.operand(), .b = b.operand(), .c = as_matrix(dx)});
    grads[0] = dx;
  }
  if (!args.needs(1)) return;
  emit_weight_grad(args, {1, weight.get(), dy.dtype()}, grads,
                   [a = from.columns, b = transpose()](const Tensor& dw, bool accumulate) {
                     kernels::fp8_gemm(
                         dw.exec(),
                         {.a = a.operand(), .b = b.operand(), .c = dw, .accumulate = accumulate});
                   });
}

}  // namespace shale
