#include "shale/kernels/elementwise.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;
using Doubles = std::vector<double>;

const std::vector<int64_t> kSizes = {0, 1, 15, 16, 17, 1000, 40000};

template <typename Y, typename A, typename B>
std::vector<Y> run_axpby(const Exec& exec, const std::vector<A>& a, const std::vector<B>& b,
                         float alpha, float beta) {
  const DeviceArray<A> d_a(exec, a);
  const DeviceArray<B> d_b(exec, b);
  const DeviceArray<Y> y(exec, d_a.size());
  kernels::axpby(exec, {.a = d_a.view(),
                        .b = b.empty() && !a.empty() ? View() : d_b.view(),
                        .y = y.view(),
                        .alpha = alpha,
                        .beta = beta});
  CHECK(y.margins_intact());
  return y.download();
}

// Operands are small integers times powers of two: they and the results are exact in every dtype.
template <typename Y, typename A, typename B>
void check_axpby_exact(const Exec& exec, int64_t n) {
  const auto a = test::rand_int<A>(n, 1, -8, 8);
  const auto b = test::rand_int<B>(n, 2, -8, 8);
  std::vector<Y> want, cast, product;
  for (size_t i = 0; i < a.size(); ++i) {
    want.push_back(Y(0.5f * to_f32(a[i]) - 2.f * to_f32(b[i])));
    cast.push_back(Y(to_f32(a[i])));
    product.push_back(Y(to_f32(a[i]) * to_f32(b[i])));
  }
  CHECK(test::max_error(run_axpby<Y>(exec, a, b, 0.5f, -2.f), test::to_f64(want)) == 0);
  CHECK(test::same_bits(run_axpby<Y, A, B>(exec, a, {}, 1, 1), cast));
  const DeviceArray<A> d_a(exec, a);
  const DeviceArray<B> d_b(exec, b);
  const DeviceArray<Y> y(exec, n);
  kernels::mul(exec, {.a = d_a.view(), .b = d_b.view(), .y = y.view()});
  CHECK(test::max_error(y.download(), test::to_f64(product)) == 0);
}

double gelu(double x, bool exact) {
  if (exact) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

double gelu_slope(double x, bool exact) {
  if (exact) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
  }
  const double root = std::sqrt(2 / std::numbers::pi);
  const double s = 1 / (1 + std::exp(-2 * root * (x + 0.044715 * x * x * x)));
  return s + x * s * (1 - s) * 2 * root * (1 + 3 * 0.044715 * x * x);
}

// Replaces every NaN by the same one, because devices have different NaNs.
template <typename T>
std::vector<T> with_one_nan(std::vector<T> values) {
  for (T& value : values) {
    if (std::isnan(to_f32(value))) value.bits = 0x7fff;
  }
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("axpby and mul mix dtypes and round once", "[kernels][elementwise]", float, bf16,
                   f16) {
  const int64_t n = GENERATE(from_range(kSizes));
  for (const Exec& exec : test::devices_with({&kernels::axpby, &kernels::mul})) {
    CAPTURE(n);
    check_axpby_exact<TestType, TestType, TestType>(exec, n);
    check_axpby_exact<TestType, float, bf16>(exec, n);
    check_axpby_exact<TestType, bf16, f16>(exec, n);
    check_axpby_exact<TestType, f16, float>(exec, n);
  }
}

TEST_CASE("axpby agrees with f64", "[kernels][elementwise]") {
  const auto a = test::randn<float>(1003, 1), b = test::randn<float>(1003, 2);
  Doubles want;
  for (size_t i = 0; i < a.size(); ++i) {
    want.push_back(double{0.3f} * double{a[i]} + double{-1.7f} * double{b[i]});
  }
  for (const Exec& exec : test::devices_with({&kernels::axpby, &kernels::mul})) {
    // y is rounded twice, as beta b and as the sum: each time by half an ulp of at most 8.
    CHECK(test::max_error(run_axpby<float>(exec, a, b, 0.3f, -1.7f), want) <=
          8 * test::ulp<float>());
  }
}

TEST_CASE("a cast rounds to nearest even and keeps NaN and infinities", "[kernels][elementwise]") {
  std::vector<float> x = {0.f,         -0.f,        1e-45f,
                          65504.f,     65520.f,     3.4e38f,
                          INFINITY,    -INFINITY,   std::numeric_limits<float>::quiet_NaN(),
                          1.00390625f, 1.01171875f, 6e-8f};
  for (int64_t i = 0; i < 500; ++i)
    x.push_back(float(std::ldexp(test::normal_at(7, i), int(i % 80) - 40)));
  std::vector<bf16> want_bf16;
  std::vector<f16> want_f16;
  for (const float value : x) {
    want_bf16.push_back(bf16(value));
    want_f16.push_back(f16(value));
  }
  for (const Exec& exec : test::devices_with({&kernels::axpby, &kernels::mul})) {
    const auto as_bf16 = run_axpby<bf16, float, float>(exec, x, {}, 1, 1);
    const auto as_f16 = run_axpby<f16, float, float>(exec, x, {}, 1, 1);
    CHECK(test::same_bits(with_one_nan(as_bf16), with_one_nan(want_bf16)));
    CHECK(test::same_bits(with_one_nan(as_f16), with_one_nan(want_f16)));
  }
}

TEST_CASE("axpby may write over an operand", "[kernels][elementwise]") {
  const auto a = test::randn<float>(100, 1), b = test::randn<float>(100, 2);
  for (const Exec& exec : test::devices_with({&kernels::axpby, &kernels::mul})) {
    const auto want = run_axpby<float>(exec, a, b, 2.f, 3.f);
    const DeviceArray<float> x(exec, a), y(exec, b);
    kernels::axpby(exec, {.a = x.view(), .b = y.view(), .y = y.view(), .alpha = 2, .beta = 3});
    CHECK(test::same_bits(y.download(), want));
  }
}

TEMPLATE_TEST_CASE("fill sets every element", "[kernels][elementwise]", float, bf16, f16, double,
                   int32_t, int64_t, uint8_t, uint16_t, uint32_t) {
  const int64_t n = GENERATE(0, 1, 31, 100000);
  for (const Exec& exec : test::devices_with({&kernels::fill})) {
    const DeviceArray<TestType> y(exec, n);
    kernels::fill(exec, {.y = y.view(), .value = 3});
    CHECK(test::same_bits(y.download(), std::vector<TestType>(size_t(n), TestType(3))));
    CHECK(y.margins_intact());
  }
}

TEMPLATE_TEST_CASE("gelu and its slope agree with f64 in both forms", "[kernels][elementwise]",
                   float, bf16, f16) {
  const int64_t n = GENERATE(from_range(kSizes));
  const bool exact = GENERATE(false, true);
  auto x = test::randn<TestType>(n, 1, 0, 3);
  if (n >= 1000) {
    // Inputs far from 0.
    for (int i = 0; i < 200; ++i) x[size_t(i)] = TestType(float(i - 100) * 0.37f);
  }
  const auto dy = test::randn<TestType>(n, 2);
  Doubles want_y, want_dx, rounded_y, rounded_dx;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = test::to_f64(x[i]), g = test::to_f64(dy[i]);
    want_y.push_back(gelu(at, exact));
    want_dx.push_back(g * gelu_slope(at, exact));
    rounded_y.push_back(test::RoundTo<TestType>()(want_y.back()));
    rounded_dx.push_back(test::RoundTo<TestType>()(want_dx.back()));
  }
  for (const Exec& exec : test::devices_with({&kernels::gelu_fwd, &kernels::gelu_bwd})) {
    CAPTURE(n, exact);
    const DeviceArray<TestType> d_x(exec, x), d_dy(exec, dy), y(exec, n), dx(exec, n);
    kernels::gelu_fwd(exec, {.x = d_x.view(), .y = y.view(), .exact = exact});
    kernels::gelu_bwd(exec, {.x = d_x.view(), .dy = d_dy.view(), .dx = dx.view(), .exact = exact});
    // The sigmoid has an error of 3 f32 ulps and erf of 2.5 ulps of 1. Both are multiplied by x, so
    // errors are relative to the largest |x|.
    CHECK(test::error_ratio(y.download(), want_y, rounded_y, 2) <= 1);
    CHECK(test::error_ratio(dx.download(), want_dx, rounded_dx, 2) <= 1);
    CHECK((y.margins_intact() && dx.margins_intact()));
  }
}

TEST_CASE("gelu is nearly exact next to zero and zero far below", "[kernels][elementwise]") {
  const bool exact = GENERATE(false, true);
  const std::vector<float> x = {1e-3f, -1e-3f, 1e-20f, 0.f, -50.f, 50.f};
  for (const Exec& exec : test::devices_with({&kernels::gelu_fwd})) {
    const DeviceArray<float> d_x(exec, x), y(exec, 6);
    kernels::gelu_fwd(exec, {.x = d_x.view(), .y = y.view(), .exact = exact});
    const auto got = y.download();
    for (size_t i = 0; i < 4; ++i) {
      CHECK(std::abs(double(got[i]) - gelu(double(x[i]), exact)) <= 4e-7 * double(std::abs(x[i])));
    }
    CHECK(std::abs(got[4]) < 1e-30f);
    CHECK(got[5] == 50.f);
  }
}

TEST_CASE("the gelu slope agrees with finite differences", "[kernels][elementwise]") {
  const bool exact = GENERATE(false, true);
  for (double x = -6; x < 6; x += 0.37) {
    const double h = 1e-5;
    const double difference = (gelu(x + h, exact) - gelu(x - h, exact)) / (2 * h);
    CHECK(gelu_slope(x, exact) == Approx(difference).margin(1e-9));
  }
}

TEST_CASE("elementwise kernels keep NaN and have the same bits for any number of threads",
          "[kernels][elementwise]") {
  auto a = test::randn<float>(50001, 1);
  a[50000] = std::numeric_limits<float>::quiet_NaN();
  const auto b = test::randn<float>(50001, 2);
  const auto gelu_of = [&](const Exec& e) {
    const DeviceArray<float> x(e, a), y(e, 50001);
    kernels::gelu_fwd(e, {.x = x.view(), .y = y.view()});
    return y.download();
  };
  const Exec& exec = test::devices()[0];
  CHECK(std::isnan(run_axpby<float>(exec, a, b, 1, 1)[50000]));
  CHECK(std::isnan(gelu_of(exec)[50000]));
  CHECK(test::same_bits_for_any_threads(
      exec, [&](const Exec& e) { return run_axpby<float>(e, a, b, 0.3f, 1.7f); }));
  CHECK(test::same_bits_for_any_threads(exec, gelu_of));
}

TEST_CASE("elementwise kernels name the argument that is wrong", "[kernels][elementwise]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8), b(exec, 9);
  const DeviceArray<int32_t> ints(exec, 8);
  CHECK(test::message_of<ShapeError>([&] {
          kernels::axpby(exec, {.a = a.view(), .b = b.view(), .y = a.view()});
        }) == "axpby: b is fp32[9], expected 8 elements");
  CHECK(test::message_of<DTypeError>([&] {
          kernels::mul(exec, {.a = ints.view(), .b = a.view(), .y = a.view()});
        }) == "mul: a is int32[8], expected fp32 or bf16 or fp16");
  CHECK(
      test::contains(test::message_of<ShapeError>([&] {
                       kernels::gelu_fwd(exec, {.x = a.view({2, 4}, {1, 2}), .y = a.view({2, 4})});
                     }),
                     "expected a contiguous tensor"));
}

}  // namespace shale
