#include "shale/runtime/ops/linear_fp8.h"

#include "shale/kernels/fp8.h"
#include "shale/runtime/ops/weight_grad.h"

namespace shale {
namespace {

using kernels::Fp8Blocks;
using kernels::Fp8Format;

// What shares a scale, and the numbers.
struct Kind {
  Fp8Blocks blocks;
  Fp8Format format = Fp8Format::kE4M3;
};

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

// An operand with memory of its own.
class Fp8Tensor {
 public:
  Fp8Tensor() = default;
  Fp8Tensor(Context& context, int64_t lines, int64_t length, const Kind& kind)
      : codes_(empty(context, {lines, kernels::fp8_codes_stride(length)}, DType::kU8)),
        scales_(empty(context, {kernels::fp8_scale_rows(length), kernels::fp8_scales_stride(lines)},
                      DType::kF32)),
        lines_(lines),
        length_(length),
        kind_(kind) {}

  kernels::Fp8Operand operand() const {
    if (!codes_.defined()) return {};
    kernels::Fp8Operand operand = {.codes = codes_.view(),
                                   .scales = scales_.view(),
                                   .blocks = kind_.blocks,
                                   .format = kind_.format};
    operand.codes.shape = {lines_, length_};
    operand.scales.shape = {kernels::fp8_scale_rows(length_), lines_};
    return operand;
  }

 private:
  Tensor codes_, scales_;
  int64_t lines_ = 0, length_ = 0;
  Kind kind_{};
};

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
  if (wanted.rows) result.rows = Fp8Tensor(x.context(), rows, columns, kind);
  if (wanted.columns) result.columns = Fp8Tensor(x.context(), columns, rows, kind);
  kernels::quantize_fp8(
      x.exec(), {.x = matrix, .rows = result.rows.operand(), .columns = result.columns.operand()});
  return result;
}

}  // namespace

Fp8Blocks fp8_weight_blocks(Operands operands) {
  return operands == Operands::kFp8Tensor ? Fp8Blocks::kTensor : Fp8Blocks::kSquares;
}

void multiply_fp8(Operands operands, const LinearInputs& inputs, const Tensor& y) {
  const auto& [x, weight, bias, residual] = inputs;
  const Fp8Recipe recipe = recipe_of(operands);
  const Fp8Tensor a = quantized(x, recipe.x, {.rows = true}).rows;
  const Fp8Tensor b = quantized(weight, recipe.weight, {.rows = true}).rows;
  kernels::fp8_gemm(x.exec(), {.a = a.operand(),
                               .b = b.operand(),
                               .c = as_matrix(y),
                               .bias = bias.defined() ? bias.view() : View{},
                               .residual = residual.defined() ? as_matrix(residual) : View{}});
}

void emit_fp8_grads(Operands operands, BackwardArgs& args, const SavedTensor& x,
                    const SavedTensor& weight, Grads& grads) {
  if (!args.needs(0) && !args.needs(1)) return;
  const Fp8Recipe recipe = recipe_of(operands);
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
  const Fp8Tensor b = quantized(x.get(), recipe.x, {.columns = true}).columns;
  emit_weight_grad(args, {1, weight.get(), dy.dtype()}, grads,
                   [a = from.columns, b](const Tensor& dw, bool accumulate) {
                     kernels::fp8_gemm(
                         dw.exec(),
                         {.a = a.operand(), .b = b.operand(), .c = dw, .accumulate = accumulate});
                   });
}

}  // namespace shale
