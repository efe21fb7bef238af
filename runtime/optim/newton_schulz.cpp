#include "shale/runtime/optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/muon.h"
#include "shale/kernels/reduce.h"

namespace shale::optim {
namespace {

// Rows of a panel of a symmetric product. With fewer a product is too small for its overheads, with
// more there is less to save.
constexpr int64_t kPanel = 256;

// Rows [row, row + rows) and columns [col, col + cols) of a matrix of any strides.
View block(const Tensor& matrix, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  const int64_t row_stride = matrix.strides().at(0), col_stride = matrix.strides().at(1);
  return matrix.alias({rows, cols}, {row_stride, col_stride}, row * row_stride + col * col_stride);
}

Tensor transposed(const Tensor& matrix) {
  return matrix.alias({matrix.size(1), matrix.size(0)},
                      {matrix.strides().at(1), matrix.strides().at(0)});
}

// c = a a', which is symmetric, for a' the transpose of a: the part below the diagonal, by panels,
// and its mirror image.
void symmetric_product(const Tensor& a, const Tensor& c) {
  const Exec& exec = c.exec();
  const int64_t rows = a.size(0), depth = a.size(1);
  const Tensor across = transposed(a);
  for (int64_t begin = 0; begin < rows; begin += kPanel) {
    const int64_t count = std::min(kPanel, rows - begin), end = begin + count;
    kernels::gemm(exec, {.a = block(a, begin, count, 0, depth),
                         .b = block(across, 0, depth, 0, end),
                         .c = block(c, begin, count, 0, end)});
    if (begin == 0) continue;
    kernels::copy(exec, {.x = block(transposed(c), 0, begin, begin, count),
                         .y = block(c, 0, begin, begin, count)});
  }
}

// x / (|x| + eps), in place.
void normalize(const Tensor& x, float eps) {
  Context& context = x.context();
  const Exec& exec = x.exec();
  constexpr int64_t kBytes = sizeof(kernels::FixedSum);
  const Tensor memory = zeros(context, {kBytes}, DType::kU8, MemoryTag::kOptimizer);
  const Tensor inverse = empty(context, {}, DType::kF32, MemoryTag::kOptimizer, "muon");
  auto* sum = static_cast<kernels::FixedSum*>(memory.data());
  kernels::sum_squares(exec, {.x = x, .sum = sum});
  kernels::inverse_norm(exec, {.sum = sum, .y = inverse, .eps = eps});
  kernels::mul(exec, {.a = x, .b = inverse, .y = x});
}

}  // namespace

NewtonSchulz muon_polynomials() {
  return {.steps = std::vector<Quintic>(5, {.a = 3.4445f, .b = -4.7750f, .c = 2.0315f})};
}

NewtonSchulz polar_express() {
  return {.steps = {{8.156554f, -22.483293f, 15.878770f},
                    {4.042930f, -2.808917f, 0.500018f},
                    {3.891668f, -2.772484f, 0.506065f},
                    {3.285754f, -2.368129f, 0.464490f},
                    {2.346541f, -1.709783f, 0.423236f}},
          .margin = 1.01f};
}

// The matrix is kept without the polynomials' factors a: X = factor T turns
//   X <- a X + (b A + c A A) X  into  T <- T + (b/a f^2 G + c/a f^4 G G) T,  factor <- a factor,
// with G = T T^T, so that the addition is the residual of a product and needs no pass of its own.
// Numbers of bf16 lose nothing by becoming small.
ScaledMatrix orthogonalize(const Tensor& x, const NewtonSchulz& method, float eps) {
  check_dtype("orthogonalize", "x", x, DType::kBF16);
  check_contiguous("orthogonalize", "x", x);
  if (x.ndim() != 2) throw ShapeError(cat("orthogonalize: x is ", to_string(x), ", want a matrix"));
  ScaledMatrix result{.value = x, .factor = 1 / method.margin};
  if (x.numel() == 0) return result;
  normalize(x, eps);
  Context& context = x.context();
  const Exec& exec = x.exec();
  const bool is_wide = x.size(0) <= x.size(1);
  const int64_t side = std::min(x.size(0), x.size(1));
  const auto matrix = [&](const Shape& shape, DType dtype) {
    return empty(context, shape, dtype, MemoryTag::kOptimizer, "muon");
  };
  const Tensor gram = matrix({side, side}, DType::kBF16), sum = matrix({side, side}, DType::kBF16);
  const Tensor square = matrix({side, side}, DType::kF32);
  Tensor spare = matrix(x.shape(), DType::kBF16);
  for (const Quintic& step : method.steps) {
    const Tensor t = result.value;
    const float squared = result.factor * result.factor;
    symmetric_product(is_wide ? t : transposed(t), gram);
    symmetric_product(gram, square);
    kernels::axpby(exec, {.a = gram,
                          .b = square,
                          .y = sum,
                          .alpha = step.b / step.a * squared,
                          .beta = step.c / step.a * squared * squared});
    kernels::gemm(exec,
                  {.a = is_wide ? sum : t, .b = is_wide ? t : sum, .c = spare, .residual = t});
    std::swap(result.value, spare);
    result.factor *= step.a;
  }
  return result;
}

}  // namespace shale::optim
