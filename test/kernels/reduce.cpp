#include "shale/kernels/reduce.h"

#include <array>
#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::FixedSum;
using kernels::kNormBlock;
using test::DeviceArray;
using Doubles = std::vector<double>;

template <typename T>
std::vector<float> run_column_sum(const Exec& exec, int64_t rows, int64_t cols,
                                  const std::vector<T>& x, float start) {
  const DeviceArray<T> d_x(exec, x);
  const DeviceArray<float> y(exec, std::vector<float>(size_t(cols), start));
  kernels::column_sum(exec,
                      {.x = d_x.view({rows, cols}), .y = y.view(), .accumulate = start == start});
  CHECK(y.margins_intact());
  return y.download();
}

float run_sum(const Exec& exec, const std::vector<float>& x, double scale = 1) {
  const DeviceArray<float> d_x(exec, x), y(exec, 1);
  kernels::sum(exec, {.x = d_x.view(), .y = y.view(Shape()), .scale = scale});
  return y.download()[0];
}

// A sum in device memory that is accumulated span by span.
template <typename T>
FixedSum run_sum_squares(const Exec& exec, const std::vector<T>& x,
                         const std::vector<std::pair<int64_t, int64_t>>& spans) {
  const DeviceArray<T> d_x(exec, x);
  test::DeviceBytes sum(exec, sizeof(FixedSum));
  FixedSum host;
  sum.upload(&host);
  for (const auto& [begin, end] : spans) {
    kernels::sum_squares(exec, {.x = d_x.view().flat(begin, end - begin),
                                .sum = static_cast<FixedSum*>(sum.data())});
  }
  sum.download(&host);
  return host;
}

bool same(const FixedSum& a, const FixedSum& b) {
  return a.low == b.low && a.high == b.high && a.bad == b.bad;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEMPLATE_TEST_CASE("column_sum adds integers exactly on every device", "[kernels][reduce]", float,
                   bf16, f16) {
  const auto [rows, cols] = GENERATE(table<int64_t, int64_t>(
      {{0, 5}, {1, 1}, {3, 31}, {16, 32}, {17, 33}, {1000, 17}, {5, 2000}}));
  const auto x = test::rand_int<TestType>(rows * cols, 1, -8, 8);
  std::vector<float> want(size_t(cols), 0.f);
  for (size_t i = 0; i < x.size(); ++i) want[i % size_t(cols)] += to_f32(x[i]);
  for (const Exec& exec : test::devices_with({&kernels::column_sum})) {
    CAPTURE(rows, cols);
    CHECK(test::same_bits(run_column_sum(exec, rows, cols, x, kNan), want));
    auto added = want;
    for (float& value : added) value += 3;
    CHECK(test::same_bits(run_column_sum(exec, rows, cols, x, 3.f), added));
  }
}

TEST_CASE("column_sum agrees with f64, and its bits do not depend on threads",
          "[kernels][reduce]") {
  const int64_t rows = 3000, cols = 40;
  const auto x = test::randn<float>(rows * cols, 1, 1);
  Doubles want(size_t(cols), 0.0);
  for (size_t i = 0; i < x.size(); ++i) want[i % size_t(cols)] += double{x[i]};
  for (const Exec& exec : test::devices_with({&kernels::column_sum})) {
    // Each column is a sum of sums of 47 numbers, then of 64 such sums: 111 roundings, each by half
    // an ulp of up to 3000.
    CHECK(test::max_error(run_column_sum(exec, rows, cols, x, kNan), want) <=
          111 * 0.5 * 2048 * test::ulp<float>());
  }
  CHECK(test::same_bits_for_any_threads(
      test::devices()[0], [&](const Exec& e) { return run_column_sum(e, rows, cols, x, kNan); }));
}

TEST_CASE("column_sum takes rows with a stride", "[kernels][reduce]") {
  const auto x = test::rand_int<float>(4 * 10, 1, -8, 8);
  for (const Exec& exec : test::devices_with({&kernels::column_sum})) {
    const DeviceArray<float> d_x(exec, x), y(exec, 3);
    kernels::column_sum(exec, {.x = d_x.view({4, 3}, {10, 1}, 2), .y = y.view()});
    const auto got = y.download();
    for (size_t c = 0; c < 3; ++c) CHECK(got[c] == x[2 + c] + x[12 + c] + x[22 + c] + x[32 + c]);
  }
}

TEST_CASE("sum is the f64 binary tree over the elements", "[kernels][reduce]") {
  // The sum depends on the order of the additions: f64 near 2^60 has steps of 256.
  const std::vector<float> x = {0x1p60f, 32.f, 32.f, -0x1p60f, 0.f, 7.f};
  // The required order is ((2^60 + 32) + (32 - 2^60)) + (0 + 7). Both 32 are lost in it.
  for (const Exec& exec : test::devices_with({&kernels::sum})) CHECK(run_sum(exec, x) == 7.f);
}

TEST_CASE("sum of halves is the sum of the whole when the cut is a power of two",
          "[kernels][reduce]") {
  const auto x = test::randn<float>(2 * 8192, 1, 0, 1e3);
  const auto half = [&](int64_t i) {
    return std::vector<float>(x.begin() + i * 8192, x.begin() + (i + 1) * 8192);
  };
  double exact = 0;
  for (const float value : x) exact += double{value};
  for (const Exec& exec : test::devices_with({&kernels::sum})) {
    const float sum = run_sum(exec, x);
    CHECK(sum == static_cast<float>(exact));  // the f64 error is far below an f32 ulp
    CHECK(run_sum(exec, half(0)) + run_sum(exec, half(1)) == Approx(sum).epsilon(1e-6));
    CHECK(run_sum(exec, x, 0.5) == 0.5f * sum);
    CHECK(run_sum(exec, {}) == 0.f);
    CHECK(std::isnan(run_sum(exec, {1.f, kNan, 2.f})));
  }
  CHECK(test::same_bits_for_any_threads(
      test::devices()[0], [&](const Exec& e) { return std::vector<float>{run_sum(e, x)}; }));
}

TEMPLATE_TEST_CASE("sum_squares agrees with f64 on every device", "[kernels][reduce]", float,
                   bf16) {
  const int64_t n = GENERATE(0, 1, 7, 8, 9, 1023, 1024, 1025, 5000, 200003);
  const auto x = test::randn<TestType>(n, 1);
  double want = 0;
  for (const TestType value : x) want += test::to_f64(value) * test::to_f64(value);
  for (const Exec& exec : test::devices_with({&kernels::sum_squares})) {
    CAPTURE(n);
    // The result has the error of f64 sums of at most 1024 squares, each truncated at 2^-80. `want`
    // itself has n roundings.
    CHECK(run_sum_squares(exec, x, {{0, n}}).value() ==
          Approx(want).epsilon(double(n + 1024) * 0x1p-53));
  }
}

TEMPLATE_TEST_CASE("sum_squares has the same bits however it is cut at blocks, in any order",
                   "[kernels][reduce]", float, bf16) {
  const int64_t n = 70 * kNormBlock + 333;
  const auto x = test::randn<TestType>(n, 1);
  for (const Exec& exec : test::devices_with({&kernels::sum_squares})) {
    const FixedSum whole = run_sum_squares(exec, x, {{0, n}});
    CHECK(same(run_sum_squares(exec, x, {{0, 1024}, {1024, n}}), whole));
    CHECK(same(run_sum_squares(exec, x, {{66 * 1024, n}, {3 * 1024, 66 * 1024}, {0, 3 * 1024}}),
               whole));
    std::vector<std::pair<int64_t, int64_t>> blocks;
    for (int64_t b = 70; b >= 0; --b) blocks.emplace_back(b * 1024, std::min(n, (b + 1) * 1024));
    CHECK(same(run_sum_squares(exec, x, blocks), whole));
    for (const int threads : {1, 2, 3, 4, 7}) {
      CHECK(same(run_sum_squares(test::with_threads(exec, threads), x, {{0, n}}), whole));
    }
  }
}

TEST_CASE("sum_squares adds elements of a block in eight lanes", "[kernels][reduce]") {
  // Every device must add in this order: lane l adds elements l, l + 8, ...; then the lanes in a
  // tree.
  const auto x = test::randn<float>(kNormBlock, 3);
  double lanes[8] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % 8] += double{x[i]} * double{x[i]};
  FixedSum want;
  want.add(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
  for (const Exec& exec : test::devices_with({&kernels::sum_squares})) {
    CHECK(same(run_sum_squares(exec, x, {{0, kNormBlock}}), want));
  }
}

TEST_CASE("one NaN or infinity in a gradient is found", "[kernels][reduce]") {
  const float bad = GENERATE(as<float>{}, kNan, INFINITY, -INFINITY);
  const size_t at = GENERATE(0u, 1023u, 5555u, 9999u);
  auto x = test::randn<float>(10000, 1);
  x[at] = bad;
  CAPTURE(bad, at);
  for (const Exec& exec : test::devices_with({&kernels::sum_squares})) {
    CHECK(run_sum_squares(exec, x, {{0, 10000}}).value() == INFINITY);
  }
}

TEST_CASE("clip_factor writes norm, factor and flag of the step", "[kernels][reduce]") {
  struct Want {
    double sum;
    float max_norm, loss_scale;
    double norm, factor;
    uint32_t non_finite;
    float factor_of_norm = 1;
  };
  const Want want = GENERATE(Want{16, 1, 1, 8, 1 / (8 + 1e-6), 0, 2}, Want{16, 0, 1, 4, 1, 0},
                             Want{16, 1, 1, 4, 1 / (4 + 1e-6), 0}, Want{16, 8, 1, 4, 1, 0},
                             Want{16, 1, 2, 2, 0.5 / (2 + 1e-6), 0}, Want{0, 1, 1, 0, 1, 0},
                             Want{INFINITY, 1, 1, INFINITY, 0, 1});
  for (const Exec& exec : test::devices_with({&kernels::clip_factor})) {
    StepState state;
    state.loss_scale.value = want.loss_scale;
    // clip_factor must overwrite this value, whether the result is 0 or 1.
    state.non_finite = 1 - want.non_finite;
    const test::DeviceStep step(exec, state);
    std::array<FixedSum, 3> parts;  // sums of three ranks; the first is empty
    test::DeviceBytes sum(exec, sizeof parts);
    parts[1].add(want.sum / 4);
    parts[2].add(want.sum * 3 / 4);
    sum.upload(parts.data());
    kernels::clip_factor(step.exec(), {.sum = static_cast<const FixedSum*>(sum.data()),
                                       .parts = 3,
                                       .max_norm = want.max_norm,
                                       .factor = want.factor_of_norm});
    const StepState got = step.download();
    CHECK(got.grad_norm == static_cast<float>(want.norm));
    CHECK(got.clip_factor == Approx(want.factor));
    CHECK(got.non_finite == want.non_finite);
  }
}

TEST_CASE("reductions name the argument that is wrong", "[kernels][reduce]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8);
  const DeviceArray<f16> half(exec, 8);
  FixedSum sum;
  CHECK(test::message_of<ShapeError>([&] {
          kernels::column_sum(exec, {.x = a.view({2, 4}), .y = a.view({8})});
        }) == "column_sum: y is fp32[8], expected shape [4]");
  CHECK(test::message_of<DTypeError>([&] {
          kernels::sum_squares(exec, {.x = half.view(), .sum = &sum});
        }) == "sum_squares: x is fp16[8], expected fp32 or bf16");
  CHECK(test::message_of<ShapeError>([&] { kernels::sum(exec, {.x = a.view(), .y = a.view()}); }) ==
        "sum: y is fp32[8], expected one element");
}

}  // namespace shale
