#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/index.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

// Tests functions that have the names and meaning of those in NumPy and PyTorch.
namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Bytes = std::vector<uint8_t>;

}  // namespace

TEST_CASE("operators agree with f64") {
  expect_op({.name = "arithmetic",
             .inputs = {{2, 3}, {3}},
             .output = {2, 3},
             .op = [](const auto& x) { return -(2 * x[0] + x[1] - 1) / 4 - (1 - x[0]) * x[1]; },
             .reference =
                 [](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 6; ++i) {
                     const double a = x[0][i], b = x[1][i % 3];
                     y.push_back(-(2 * a + b - 1) / 4 - (1 - a) * b);
                   }
                   return y;
                 }},
            4e-6, 8);
  expect_op({.name = "quotients",
             .inputs = {{4}, {4}},
             .output = {4},
             .op = [](const auto& x) { return 1 / (x[0] * x[0] + 2) + x[1] / (x[0] * x[0] + 1); },
             .reference =
                 [](const std::vector<Vec>& x) {
                   Vec y;
                   for (size_t i = 0; i < 4; ++i) {
                     const double square = x[0][i] * x[0][i];
                     y.push_back(1 / (square + 2) + x[1][i] / (square + 1));
                   }
                   return y;
                 }},
            4e-6, 8);
}

TEST_CASE("comparisons are elementwise, with NaN on neither side") {
  Context context(small_context());
  const std::vector<float> values = {1, 2, 3, std::nanf("")}, others = {2, 2, 2, 2};
  const Tensor a = from_host<float>(context, values, {4}),
               b = from_host<float>(context, others, {4});
  const auto check = [](const Tensor& found, const Bytes& want) {
    CHECK(to_host<uint8_t>(found) == want);
  };
  check(a < b, {1, 0, 0, 0});
  check(a <= b, {1, 1, 0, 0});
  check(a > b, {0, 0, 1, 0});
  check(a >= b, {0, 1, 1, 0});
  check(a == b, {0, 1, 0, 0});
  check(a != b, {1, 0, 1, 1});
  check(a < 2, {1, 0, 0, 0});
  check(a <= 2, {1, 1, 0, 0});
  check(a > 2, {0, 0, 1, 0});
  check(a >= 2, {0, 1, 1, 0});
  check(a == 2, {0, 1, 0, 0});
  check(a != 2, {1, 0, 1, 1});
  check(2 < a, {0, 0, 1, 0});
  check(2 <= a, {0, 1, 1, 0});
  check(2 > a, {1, 0, 0, 0});
  check(2 >= a, {1, 1, 0, 0});
}

TEST_CASE("scatter agrees with f64, and the last of equal indices counts") {
  const std::vector<int32_t> index = {2, 0, 2, 1, 1, 1};
  expect_op({.name = "scatter",
             .inputs = {{2, 4}, {2, 3}},
             .output = {2, 4},
             .op =
                 [&](const auto& x) {
                   const Tensor at = from_host<int32_t>(x[0].context(), index, {2, 3});
                   const Tensor y = scatter(x[0], 1, at, x[1]);
                   return mul(y, y);
                 },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   Vec y = x[0];
                   for (size_t i = 0; i < 6; ++i) y[i / 3 * 4 + size_t(index[i])] = x[1][i];
                   for (double& value : y) value *= value;
                   return y;
                 }},
            4e-6, 4);
  const std::vector<int32_t> rows = {1, 0};
  expect_op({.name = "scatter of rows",
             .inputs = {{3, 2}, {1, 2}},
             .output = {3, 2},
             .op =
                 [&](const auto& x) {
                   return scatter(x[0], 0, from_host<int32_t>(x[0].context(), rows, {1, 2}), x[1]);
                 },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   Vec y = x[0];
                   for (size_t i = 0; i < 2; ++i) y[size_t(rows[i]) * 2 + i] = x[1][i];
                   return y;
                 }});
}

TEST_CASE("cumsum agrees with f64 along every dimension") {
  const Shape shape = {3, 5, 2};
  for (const int dim : {0, 1, -1}) {
    const int at = dim < 0 ? dim + 3 : dim;
    int64_t stride = 1;
    for (int d = 2; d > at; --d) stride *= shape[d];
    expect_op({.name = cat("cumsum along ", dim),
               .inputs = {shape},
               .output = shape,
               .op = [dim](const auto& x) { return cumsum(x[0], dim); },
               .reference =
                   [&](const std::vector<Vec>& x) {
                     Vec y = x[0];
                     for (size_t i = 0; i < y.size(); ++i) {
                       const bool is_first = int64_t(i) / stride % shape[at] == 0;
                       if (!is_first) y[i] += y[i - size_t(stride)];
                     }
                     return y;
                   }},
              4e-6, 4);
  }
  Context context(small_context());
  const Tensor ones = full(context, {1000}, DType::kF32, 1);
  const auto sums = to_host<float>(cumsum(ones, 0));
  for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == float(i + 1));
  CHECK(to_host<float>(ones) == std::vector<float>(1000, 1.f));
  CHECK(cumsum(zeros(context, {0, 3}, DType::kF32), 0).numel() == 0);
  CHECK(cumsum(zeros(context, {3, 0}, DType::kF32), 0).numel() == 0);
  CHECK(contains(message_of<ShapeError>([&] { cumsum(ones, 1); }), "no dimension 1"));
}

TEST_CASE("matmul takes vectors as NumPy does") {
  const auto product = [](const Vec& a, const Vec& b, size_t m, size_t k, size_t n) {
    Vec y(m * n);
    for (size_t i = 0; i < m * k * n; ++i) {
      y[i / n / k * n + i % n] += a[i / n] * b[i / n % k * n + i % n];
    }
    return y;
  };
  const auto op = [](const auto& x) { return matmul(x[0], x[1]); };
  const auto expect = [&](const Shape& a, const Shape& b, const Shape& y, size_t m, size_t n) {
    expect_op({.name = cat(a, " ", b),
               .inputs = {a, b},
               .output = y,
               .op = op,
               .reference = [&](const auto& x) { return product(x[0], x[1], m, 3, n); }},
              4e-6, 4);
  };
  expect({3}, {3}, {}, 1, 1);
  expect({3}, {3, 2}, {2}, 1, 2);
  expect({2, 3}, {3}, {2}, 2, 1);
  expect({2, 2, 3}, {3}, {2, 2}, 4, 1);
  Context context(small_context());
  const Tensor x = zeros(context, {3}, DType::kF32);
  CHECK_THROWS_AS(matmul(x, zeros(context, {2}, DType::kF32)), ShapeError);
  CHECK_THROWS_AS(matmul(x, zeros(context, {}, DType::kF32)), ShapeError);
}

}  // namespace shale::test
