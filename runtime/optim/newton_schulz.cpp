#include "shale/runtime/optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/grouped_gemm.h"
#include "shale/kernels/muon.h"
#include "shale/kernels/reduce.h"

namespace shale::optim {
namespace {

// Rows per panel of a symmetric matmul. Smaller panels make GEMMs inefficient; larger ones save
// less.
constexpr int64_t kPanel = 256;

// Returns a view of rows [row, row + rows) and columns [col, col + cols) of a matrix with any
// strides.
View block(const Tensor& matrix, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  const int64_t row_stride = matrix.strides().at(0), col_stride = matrix.strides().at(1);
  return matrix.alias({rows, cols}, {row_stride, col_stride}, row * row_stride + col * col_stride);
}

Tensor transposed(const Tensor& matrix) {
  return matrix.alias({matrix.size(1), matrix.size(0)},
                      {matrix.strides().at(1), matrix.strides().at(0)});
}

// Computes c = a a', where a' is the transpose of a. c is symmetric, so only its lower triangle is
// computed, panel by panel; the upper triangle is a copy.
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

// Replaces each matrix x by x / (|x| + eps).
void normalize(const Tensor& x, float eps) {
  Context& context = x.context();
  const Exec& exec = x.exec();
  constexpr int64_t kBytes = sizeof(kernels::FixedSum);
  const int64_t count = x.ndim() == 3 ? x.size(0) : 1, numel = x.numel() / count;
  const Tensor memory = zeros(context, {count * kBytes}, DType::kU8, MemoryTag::kOptimizer);
  const Tensor inverse = empty(context, {count}, DType::kF32, MemoryTag::kOptimizer, "muon");
  auto* const sums = static_cast<kernels::FixedSum*>(memory.data());
  for (int64_t i = 0; i < count; ++i) {
    const Tensor matrix = x.alias({numel}, {1}, i * numel), factor = inverse.alias({}, {}, i);
    kernels::sum_squares(exec, {.x = matrix, .sum = sums + i});
    kernels::inverse_norm(exec, {.sum = sums + i, .y = factor, .eps = eps});
    kernels::mul(exec, {.a = matrix, .b = factor, .y = matrix});
  }
}

// ---- GEMMs of a step ----

// GEMMs for one matrix T. gram: G = T T' or T' T, whichever is smaller. square: G G. add_product: Y
// = T + S T or T + T S.
class Single {
 public:
  explicit Single(const Tensor& x) : is_wide_(x.size(0) <= x.size(1)) {}

  void gram(const Tensor& t, const Tensor& g) const {
    symmetric_product(is_wide_ ? t : transposed(t), g);
  }
  void square(const Tensor& g, const Tensor& gg) const { symmetric_product(g, gg); }
  void add_product(const Tensor& s, const Tensor& t, const Tensor& y) const {
    kernels::gemm(y.exec(), {.a = is_wide_ ? s : t, .b = is_wide_ ? t : s, .c = y, .residual = t});
  }

 private:
  bool is_wide_;
};

// The GEMMs of Single for a batch [b, m, n], each in one kernel call.
class Batched {
 public:
  explicit Batched(const Tensor& x)
      : b_(x.size(0)),
        m_(x.size(1)),
        n_(x.size(2)),
        by_rows_(offsets(x.context(), m_)),
        by_side_(m_ <= n_ ? by_rows_ : offsets(x.context(), n_)) {}

  void gram(const Tensor& t, const Tensor& g) const {
    const Tensor rows = t.alias({b_ * m_, n_}, {n_, 1});
    if (m_ > n_) {
      kernels::grouped_gemm(t.exec(), {.offsets = by_rows_,
                                       .by = kernels::GroupedBy::kInner,
                                       .a = transposed(rows),
                                       .b = rows,
                                       .c = g});
      return;
    }
    product(rows, t.alias({b_, n_, m_}, {m_ * n_, 1, n_}), as_rows(g), by_rows_);
  }
  void square(const Tensor& g, const Tensor& gg) const {
    product(as_rows(g), g, as_rows(gg), by_side_);
  }
  void add_product(const Tensor& s, const Tensor& t, const Tensor& y) const {
    kernels::copy(y.exec(), {.x = t, .y = y});
    const bool is_wide = m_ <= n_;
    product(as_rows(is_wide ? s : t), is_wide ? t : s, as_rows(y), by_rows_, /*accumulate=*/true);
  }

 private:
  // Returns the first row of each matrix, followed by the end of the last one.
  Tensor offsets(Context& context, int64_t rows) const {
    std::vector<int32_t> first;
    for (int64_t i = 0; i <= b_; ++i) first.push_back(static_cast<int32_t>(i * rows));
    return from_host<int32_t>(context, first, {b_ + 1});
  }
  static Tensor as_rows(const Tensor& x) {
    return x.alias({x.size(0) * x.size(1), x.size(2)}, {x.size(2), 1});
  }
  static void product(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& offsets,
                      bool accumulate = false) {
    kernels::grouped_gemm(c.exec(),
                          {.offsets = offsets, .a = a, .b = b, .c = c, .accumulate = accumulate});
  }

  int64_t b_, m_, n_;
  Tensor by_rows_, by_side_;
};

// Keeps the polynomials' factors a separate from the matrices. With X = factor T,
//   X <- a X + (b A + c A A) X  becomes  T <- T + (b/a f^2 G + c/a f^4 G G) T,  factor <- a factor,
// where f = factor and G = T T^T. The addition is thus a GEMM's residual and needs no pass of its
// own. bf16 values lose no precision when they become small.
template <class Products>
void iterate(const Products& products, const NewtonSchulz& method, const Shape& gram_shape,
             ScaledMatrix& result) {
  Context& context = result.value.context();
  const auto matrix = [&](const Shape& shape, DType dtype) {
    return empty(context, shape, dtype, MemoryTag::kOptimizer, "muon");
  };
  const Tensor gram = matrix(gram_shape, DType::kBF16), sum = matrix(gram_shape, DType::kBF16);
  const Tensor square = matrix(gram_shape, DType::kF32);
  Tensor spare = matrix(result.value.shape(), DType::kBF16);
  for (const Quintic& step : method.steps) {
    const float squared = result.factor * result.factor;
    products.gram(result.value, gram);
    products.square(gram, square);
    kernels::axpby(sum.exec(), {.a = gram,
                                .b = square,
                                .y = sum,
                                .alpha = step.b / step.a * squared,
                                .beta = step.c / step.a * squared * squared});
    products.add_product(sum, result.value, spare);
    std::swap(result.value, spare);
    result.factor *= step.a;
  }
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

bool wants_batches(const Context& context, int64_t m, int64_t n) {
  return std::min(m, n) <= kPanel && kernels::grouped_gemm.filled(context.device().type);
}

ScaledMatrix orthogonalize(const Tensor& x, const NewtonSchulz& method, float eps) {
  check_dtype("orthogonalize", "x", x, DType::kBF16);
  check_contiguous("orthogonalize", "x", x);
  if (x.ndim() != 2 && x.ndim() != 3) {
    throw ShapeError(
        cat("orthogonalize: x is ", to_string(x), ", expected a matrix or a batch of them"));
  }
  ScaledMatrix result{.value = x, .factor = 1 / method.margin};
  if (x.numel() == 0) return result;
  normalize(x, eps);
  const int64_t side = std::min(x.size(-2), x.size(-1));
  if (x.ndim() == 2) {
    iterate(Single(x), method, {side, side}, result);
  } else {
    iterate(Batched(x), method, {x.size(0), side, side}, result);
  }
  return result;
}

}  // namespace shale::optim
