#include "shale/kernels/rope.h"

#include <cmath>
#include <numbers>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/numbers.h"

namespace shale {
namespace {

using test::DeviceArray;

constexpr double kTurn = 2 * std::numbers::pi;

struct Case {
  Shape shape;  // [B, T, H, D]
  bool interleaved = false;
  int64_t first_position = 0;
  float scale = 1;
};

std::vector<uint64_t> turns_of(int64_t head_size) {
  std::vector<uint64_t> turns;
  for (int64_t i = 0; i < head_size / 2; ++i) {
    const double f = std::pow(10'000.0, -2.0 * double(i) / double(head_size));
    turns.push_back(uint64_t(std::ldexp(f / kTurn, 64)));
  }
  return turns;
}

template <typename T>
std::vector<T> run(const Exec& exec, const Case& c, const std::vector<T>& x,
                   const std::vector<int32_t>& positions = {}, bool inverse = false) {
  const std::vector<uint64_t> turns = turns_of(c.shape[3]);
  const DeviceArray<T> d_x(exec, x), y(exec, int64_t(x.size()));
  const DeviceArray<int32_t> d_positions(exec, positions);
  kernels::rope(
      exec, {.x = d_x.view(c.shape),
             .y = y.view(c.shape),
             .turns = turns.data(),
             .positions = positions.empty() ? View{} : d_positions.view({c.shape[0], c.shape[1]}),
             .first_position = c.first_position,
             .scale = c.scale,
             .interleaved = c.interleaved,
             .inverse = inverse});
  CHECK(y.margins_intact());
  return y.download();
}

// Computes the formula in f64, with exact argument reduction.
template <typename T>
std::vector<double> reference(const Case& c, const std::vector<T>& x,
                              const std::vector<int32_t>& positions = {}) {
  const int64_t length = c.shape[1], heads = c.shape[2], pairs = c.shape[3] / 2;
  const std::vector<uint64_t> turns = turns_of(c.shape[3]);
  std::vector<double> y(x.size());
  for (int64_t row = 0; row < c.shape[0] * length; ++row) {
    const auto position =
        uint64_t(positions.empty() ? c.first_position + row % length : positions[size_t(row)]);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = std::ldexp(double(int64_t(position * turns[size_t(i)])), -64) * kTurn;
        const int64_t head = (row * heads + h) * 2 * pairs;
        const auto a = size_t(head + (c.interleaved ? 2 * i : i));
        const auto b = size_t(head + (c.interleaved ? 2 * i + 1 : i + pairs));
        const double left = to_f32(x[a]), right = to_f32(x[b]);
        y[a] = c.scale * (left * std::cos(angle) - right * std::sin(angle));
        y[b] = c.scale * (left * std::sin(angle) + right * std::cos(angle));
      }
    }
  }
  return y;
}

template <typename T>
double largest_error(const std::vector<T>& got, const std::vector<double>& want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(to_f32(got[i]) - want[i]));
  }
  return largest;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.shape = {1, 1, 1, 2}},
      {.shape = {2, 3, 5, 6}, .first_position = 7},
      {.shape = {2, 9, 3, 64}, .scale = 1.25f},
      {.shape = {1, 5, 9, 128}, .first_position = 1 << 20},
      {.shape = {1, 3, 2, 256}},
      {.shape = {2, 3, 5, 6}, .interleaved = true},
      {.shape = {1, 5, 6, 128}, .interleaved = true, .first_position = 999'983},
  };
  return all;
}

int64_t count(const Shape& shape) {
  return shape.numel();
}

}  // namespace

TEMPLATE_TEST_CASE("rope turns pairs by angles that are exact at any position", "[kernels][rope]",
                   float, bf16, f16) {
  // Values are up to about 5. The error is that of f32, or that of rounding to the dtype.
  const double tolerance = std::is_same_v<TestType, float> ? 1.5e-6 : 5 * test::ulp<TestType>();
  for (const Case& c : cases()) {
    const auto x = test::randn<TestType>(count(c.shape), 3);
    const std::vector<double> want = reference(c, x);
    std::vector<TestType> first;
    for (const Exec& exec : test::devices_with({&kernels::rope})) {
      CAPTURE(to_string(exec.device), c.shape, c.interleaved, c.first_position);
      const std::vector<TestType> got = run(exec, c, x);
      CHECK(largest_error(got, want) <= tolerance);
      if (first.empty()) first = got;
      CHECK(test::same_bits(got, first));  // all devices have the same bits
    }
  }
}

TEST_CASE("rope takes positions, each token's own", "[kernels][rope]") {
  const Case c{.shape = {2, 4, 3, 64}};
  const std::vector<int32_t> positions = {0, 1, 0, 1'000'000, 5, 5, 2, 0};
  const auto x = test::randn<float>(count(c.shape), 5);
  for (const Exec& exec : test::devices_with({&kernels::rope})) {
    const std::vector<float> got = run(exec, c, x, positions);
    CHECK(largest_error(got, reference(c, x, positions)) <= 1.5e-6);
    // The first token has position 0, so it is not rotated, bit for bit.
    CHECK(std::equal(got.begin(), got.begin() + 3 * 64, x.begin()));
  }
}

TEST_CASE("rope's inverse turns back", "[kernels][rope]") {
  for (const Case& c : cases()) {
    if (c.scale != 1) continue;
    const auto x = test::randn<float>(count(c.shape), 6);
    for (const Exec& exec : test::devices_with({&kernels::rope})) {
      CAPTURE(to_string(exec.device), c.shape);
      const std::vector<float> back = run(exec, c, run(exec, c, x), {}, /*inverse=*/true);
      CHECK(largest_error(back, std::vector<double>(x.begin(), x.end())) <= 2e-6);
    }
  }
}

TEST_CASE("rope works in place, on slices of a wider tensor", "[kernels][rope]") {
  // q is part of a tensor with q, k and v next to each other. Its offset is odd, so it cannot be
  // accessed in packs.
  const int64_t rows = 6, heads = 2, D = 64, width = 3 * heads * D + 1;
  const Case c{.shape = {2, 3, heads, D}};
  const auto all = test::randn<float>(rows * width, 7);
  std::vector<float> q;
  for (int64_t r = 0; r < rows; ++r) {
    q.insert(q.end(), all.begin() + r * width + 1, all.begin() + r * width + 1 + heads * D);
  }
  const std::vector<uint64_t> turns = turns_of(D);
  for (const Exec& exec : test::devices_with({&kernels::rope})) {
    const std::vector<float> want = run(exec, c, q);
    const DeviceArray<float> x(exec, all);
    const View view = x.view(c.shape, {3 * width, width, D, 1}, 1);
    kernels::rope(exec, {.x = view, .y = view, .turns = turns.data()});
    const std::vector<float> got = x.download();
    for (int64_t i = 0; i < rows * width; ++i) {
      const int64_t at = i % width - 1;
      const bool turned = at >= 0 && at < heads * D;
      REQUIRE(got[size_t(i)] ==
              (turned ? want[size_t(i / width * heads * D + at)] : all[size_t(i)]));
    }
  }
}

TEST_CASE("rope refuses what it cannot turn", "[kernels][rope]") {
  const Exec& exec = test::devices().front();
  std::vector<float> x(1024);
  const std::vector<uint64_t> turns(256);
  const auto message = [&](const Shape& shape) {
    const View view = make_view(x.data(), shape);
    return test::message_of<ShapeError>(
        [&] { kernels::rope(exec, {.x = view, .y = view, .turns = turns.data()}); });
  };
  CHECK(test::contains(message({1, 2, 3, 7}), "expected [B, T, H, D] with D even"));
  CHECK(test::contains(message({1, 1, 1, 258}), "2 to 256"));
  CHECK(test::contains(message({2, 2, 4}), "[B, T, H, D]"));
}

}  // namespace shale
