#include "shale/runtime/ops/linear_fp8.h"

#include "shale/kernels/fp8.h"
#include "shale/runtime/ops/weight_grad.h"

namespace shale {
namespace {

// An operand with memory of its own.
class Fp8Tensor {
 public:
  Fp8Tensor() = default;
  Fp8Tensor(Context& context, int64_t lines, int64_t length, bool is_square)
      : codes_(empty(context, {lines, kernels::fp8_codes_stride(length)}, DType::kU8)),
        scales_(empty(context, {kernels::fp8_scale_rows(length), kernels::fp8_scales_stride(lines)},
                      DType::kF32)),
        lines_(lines),
        length_(length),
        is_square_(is_square) {}

  kernels::Fp8Operand operand() const {
    if (!codes_.defined()) return {};
    kernels::Fp8Operand operand = {
        .codes = codes_.view(), .scales = scales_.view(), .is_square = is_square_};
    operand.codes.shape = {lines_, length_};
    operand.scales.shape = {kernels::fp8_scale_rows(length_), lines_};
    return operand;
  }

 private:
  Tensor codes_, scales_;
  int64_t lines_ = 0, length_ = 0;
  bool is_square_ = false;
};

// x, seen as a matrix, and its transpose, as far as they are wanted.
struct Wanted {
  bool rows = false, columns = false, squares = false;
};
struct Quantized {
  Fp8Tensor rows, columns;
};
Quantized quantized(const Tensor& x, const Wanted& wanted) {
  const View matrix = as_matrix(x);
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  Quantized result;
  if (wanted.rows) result.rows = Fp8Tensor(x.context(), rows, columns, wanted.squares);
  if (wanted.columns) result.columns = Fp8Tensor(x.context(), columns, rows, wanted.squares);
  kernels::quantize_fp8(
      x.exec(), {.x = matrix, .rows = result.rows.operand(), .columns = result.columns.operand()});
  return result;
}

}  // namespace

void multiply_fp8(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                  const Tensor& y) {
  const Fp8Tensor a = quantized(x, {.rows = true}).rows;
  const Fp8Tensor b = quantized(weight, {.rows = true, .squares = true}).rows;
  kernels::fp8_gemm(x.exec(), {.a = a.operand(),
                               .b = b.operand(),
                               .c = as_matrix(y),
                               .bias = bias.defined() ? bias.view() : View{},
                               .residual = residual.defined() ? as_matrix(residual) : View{}});
}

void emit_fp8_grads(BackwardArgs& args, const SavedTensor& x, const SavedTensor& weight,
                    Grads& grads) {
  if (!args.needs(0) && !args.needs(1)) return;
  const Tensor dy = args.dy();
  const Quantized from = quantized(dy, {.rows = args.needs(0), .columns = args.needs(1)});
  if (args.needs(0)) {
    const Tensor values = weight.get();
    const Fp8Tensor b = quantized(values, {.columns = true, .squares = true}).columns;
    Tensor dx = empty(dy.context(), with_last(dy.shape(), values.size(1)), dy.dtype());
    kernels::fp8_gemm(dy.exec(), {.a = from.rows.operand(), .b = b.operand(), .c = as_matrix(dx)});
    grads[0] = dx;
  }
  if (!args.needs(1)) return;
  const Fp8Tensor b = quantized(x.get(), {.columns = true}).columns;
  emit_weight_grad(args, {1, weight.get(), dy.dtype()}, grads,
                   [a = from.columns, b](const Tensor& dw, bool accumulate) {
                     kernels::fp8_gemm(
                         dw.exec(),
                         {.a = a.operand(), .b = b.operand(), .c = dw, .accumulate = accumulate});
                   });
}

}  // namespace shale
