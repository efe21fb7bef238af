#include "shale/runtime/ops/matmul.h"

#include "shale/runtime/amp/autocast.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;

// Index of the matrix of x that is broadcast to matrix `i` of the batch y.
int64_t matrix_of(int64_t i, const Shape& y, const Shape& x) {
  int64_t at = 0, factor = 1;
  for (int d = 3; d <= y.ndim(); ++d) {
    const int64_t index = i % y.at(-d);
    i /= y.at(-d);
    if (d > x.ndim()) continue;
    if (x.at(-d) > 1) at += index * factor;
    factor *= x.at(-d);
  }
  return at;
}

OpCase matmul_case(const Shape& a, const Shape& b, const Shape& y) {
  return {.name = cat("matmul ", a, " ", b),
          .inputs = {a, b},
          .output = y,
          .op = [](const std::vector<Tensor>& x) { return matmul(x[0], x[1]); },
          .reference =
              [=](const std::vector<Vec>& x) {
                const int64_t M = a.at(-2), K = a.at(-1), N = b.at(-1);
                Vec result(size_t(y.numel()));
                for (int64_t i = 0; i < y.numel(); ++i) {
                  const int64_t m = i / N % M, n = i % N, matrix = M * N == 0 ? 0 : i / (M * N);
                  const int64_t of_a = matrix_of(matrix, y, a), of_b = matrix_of(matrix, y, b);
                  for (int64_t k = 0; k < K; ++k) {
                    result[size_t(i)] +=
                        x[0][size_t((of_a * M + m) * K + k)] * x[1][size_t((of_b * K + k) * N + n)];
                  }
                }
                return result;
              }};
}

}  // namespace

TEST_CASE("products of activations, broadcast over batches, agree with f64") {
  // Allows the roundings of sums of up to 40 terms.
  expect_op(matmul_case({3, 5}, {5, 4}, {3, 4}), 1e-5, 4);
  expect_op(matmul_case({2, 3, 5}, {2, 5, 4}, {2, 3, 4}), 1e-5, 4);
  expect_op(matmul_case({2, 3, 5}, {5, 4}, {2, 3, 4}), 1e-5, 4);
  expect_op(matmul_case({3, 5}, {2, 5, 4}, {2, 3, 4}), 1e-5, 4);
  expect_op(matmul_case({2, 1, 3, 7}, {3, 7, 2}, {2, 3, 3, 2}), 1e-5, 4);
  expect_op(matmul_case({1, 1}, {4, 1, 1}, {4, 1, 1}), 1e-5, 4);
  expect_op(matmul_case({0, 3, 5}, {5, 4}, {0, 3, 4}), 1e-5, 4);
  expect_op(matmul_case({2, 33, 40}, {2, 40, 17}, {2, 33, 17}), 1e-5, 4);
}

TEST_CASE("matmul takes transposed and strided tensors") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor q = random_leaf(context, {2, 4, 3, 8}, 1),
                 k = random_leaf(context, {2, 4, 3, 8}, 2);
    // Computes attention scores from tensors in which heads are adjacent: [2, 3, 4, 8] times [2, 3,
    // 8, 4].
    const Tensor heads_q = transpose(q, 1, 2), heads_k = transpose(transpose(k, 1, 2), 2, 3);
    const Tensor scores = matmul(heads_q, heads_k);
    const Tensor want = matmul(contiguous(heads_q), contiguous(heads_k));
    CHECK(scores.shape() == Shape{2, 3, 4, 4});
    const auto got = to_host<float>(scores), exact = to_host<float>(want);
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(exact[i]).margin(1e-5));
  }
}

TEST_CASE("matmul of a region of autocast is computed in its dtype") {
  Context context(small_context());
  const Tensor a = random_leaf(context, {2, 3}, 1), b = random_leaf(context, {3, 2}, 2);
  const amp::Autocast region(context, DType::kBF16);
  CHECK(matmul(a, b).dtype() == DType::kBF16);
}

TEST_CASE("matmul names what does not fit") {
  Context context(small_context());
  const Tensor a = random_leaf(context, {2, 3, 5}, 1);
  const auto error = [](auto&& call) { return message_of<ShapeError>(call); };
  CHECK(error([&] { matmul(a, a); }) ==
        "matmul: b is [2,3,5], a is [2,3,5], expected a [...,M,K] and b [...,K,N]");
  CHECK(error([&] {
          matmul(a, random_leaf(context, {4, 5, 2}, 1));
        }) ==
        "matmul: b is [4], a is [2], expected in each dimension equal sizes, or one size of 1");
}

}  // namespace shale::test
