#include "shale/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;

struct Size {
  int64_t rows, cols;
};

Doubles softmax(const Doubles& x, Size n, bool log) {
  Doubles y(x.size());
  for (int64_t r = 0; r < n.rows; ++r) {
    const auto begin = x.begin() + r * n.cols, end = begin + n.cols;
    const double top = *std::max_element(begin, end);
    double sum = 0;
    for (auto at = begin; at != end; ++at) sum += std::exp(*at - top);
    for (int64_t c = 0; c < n.cols; ++c) {
      const double shifted = begin[c] - top;
      y[size_t(r * n.cols + c)] = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    }
  }
  return y;
}

Doubles softmax_grad(const Doubles& y, const Doubles& dy, Size n, bool log) {
  Doubles dx(y.size());
  for (int64_t r = 0; r < n.rows; ++r) {
    double sum = 0;
    for (int64_t i = r * n.cols; i < (r + 1) * n.cols; ++i) {
      sum += log ? dy[size_t(i)] : dy[size_t(i)] * y[size_t(i)];
    }
    for (int64_t i = r * n.cols; i < (r + 1) * n.cols; ++i) {
      const size_t k = size_t(i);
      dx[k] = log ? dy[k] - std::exp(y[k]) * sum : y[k] * (dy[k] - sum);
    }
  }
  return dx;
}

template <typename T>
std::vector<T> run_fwd(const Exec& exec, const std::vector<T>& x, Size n, bool log) {
  const DeviceArray<T> dx(exec, x), y(exec, int64_t(x.size()));
  kernels::softmax_fwd(exec,
                       {.x = dx.view({n.rows, n.cols}), .y = y.view({n.rows, n.cols}), .log = log});
  CHECK(y.margins_intact());
  return y.download();
}

template <typename T>
std::vector<T> run_bwd(const Exec& exec, const std::vector<T>& y, const std::vector<T>& dy, Size n,
                       bool log) {
  const DeviceArray<T> values(exec, y), grads(exec, dy), dx(exec, int64_t(y.size()));
  const Shape shape = {n.rows, n.cols};
  kernels::softmax_bwd(
      exec, {.y = values.view(shape), .dy = grads.view(shape), .dx = dx.view(shape), .log = log});
  CHECK(dx.margins_intact());
  return dx.download();
}

}  // namespace

TEMPLATE_TEST_CASE("softmax and its gradient agree with f64 on every device", "[kernels][softmax]",
                   float, bf16, f16) {
  const Size n = GENERATE(Size{0, 5}, Size{1, 1}, Size{3, 7}, Size{2, 64}, Size{130, 33},
                          Size{2, 1024}, Size{3, 1500});
  const bool log = GENERATE(false, true);
  const auto x = test::randn<TestType>(n.rows * n.cols, 1, 0, 3);
  const auto dy = test::randn<TestType>(n.rows * n.cols, 2);
  const Doubles want = softmax(test::to_f64(x), n, log);
  for (const Exec& exec : test::devices_with({&kernels::softmax_fwd, &kernels::softmax_bwd})) {
    CAPTURE(to_string(exec.device), n.rows, n.cols, log);
    const auto y = run_fwd(exec, x, n, log);
    // GPU kernels compute exp(x) as exp2(x log2(e)). For |x| up to 20, rounding this product costs
    // 5 bits, which is the factor 32 in the bounds.
    const double size = std::max(1.0, test::max_abs(want));
    CHECK(test::max_error(y, want) <= size * (32 * 0x1p-24 + test::ulp<TestType>()));
    const Doubles want_dx = softmax_grad(test::to_f64(y), test::to_f64(dy), n, log);
    // Backward sums up to 1500 products with weights of the softmax. With `log`, it sums as many
    // gradients without weights.
    const double sums = log ? 64 : 4;
    CHECK(test::max_error(run_bwd(exec, y, dy, n, log), want_dx) <=
          std::max(1.0, test::max_abs(want_dx)) * (sums * 0x1p-22 + test::ulp<TestType>()));
  }
}

TEST_CASE("softmax takes masks of -inf, and rows of nothing else are NaN", "[kernels][softmax]") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Exec& exec : test::devices_with({&kernels::softmax_fwd})) {
    const auto y = run_fwd<float>(exec, {0, -inf, 0, -inf, -inf, -inf, 1, NAN, 2}, {3, 3}, false);
    CAPTURE(to_string(exec.device));
    CHECK(y[0] == Approx(0.5f));
    CHECK(y[1] == 0);
    for (size_t i = 3; i < 9; ++i) CHECK(std::isnan(y[i]));
  }
}

TEST_CASE("softmax has the same bits for any number of threads", "[kernels][softmax]") {
  const Size n{37, 501};
  const auto x = test::randn<float>(n.rows * n.cols, 1);
  CHECK(test::same_bits_for_any_threads(
      test::devices()[0], [&](const Exec& exec) { return run_fwd(exec, x, n, false); }));
  CHECK(test::same_bits_for_any_threads(
      test::devices()[0], [&](const Exec& exec) { return run_bwd(exec, x, x, n, true); }));
}

TEST_CASE("softmax names the argument that is wrong", "[kernels][softmax]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8);
  CHECK(test::message_of<ShapeError>([&] {
          kernels::softmax_fwd(exec, {.x = a.view({2, 4}), .y = a.view({4, 2})});
        }) == "softmax_fwd: y is fp32[4,2], expected shape [2,4]");
  CHECK(test::message_of<ShapeError>([&] {
          kernels::softmax_bwd(exec, {.y = a.view(), .dy = a.view(), .dx = a.view()});
        }) == "softmax_bwd: y is fp32[8], expected [rows, C]");
}

}  // namespace shale
