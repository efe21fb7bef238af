#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/test/kernels/attention_check.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale::test {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Size {
  int64_t B, T, H, D;

  int64_t rows() const { return B * T * H; }
  Shape shape() const { return {B, T, H, D}; }
  // Returns the index in [B, H, T] of row number `row` of [B, T, H].
  size_t lse(int64_t row) const { return size_t((row / H / T * H + row % H) * T + row / H % T); }
};

struct Merged {
  std::vector<float> sum, lse;
};

template <typename T>
Merged merge(const Exec& exec, Size n, const std::vector<float>& sum, const std::vector<float>& lse,
             const std::vector<T>& part, const std::vector<float>& part_lse) {
  const DeviceArray<float> y(exec, sum), y_lse(exec, lse), x_lse(exec, part_lse);
  const DeviceArray<T> x(exec, part);
  const Shape rows = {n.B, n.H, n.T};
  kernels::attention_merge(exec, {.sum = y.view(n.shape()),
                                  .lse = y_lse.view(rows),
                                  .part = x.view(n.shape()),
                                  .part_lse = x_lse.view(rows)});
  CHECK(y.margins_intact());
  CHECK(y_lse.margins_intact());
  return {y.download(), y_lse.download()};
}

// Makes log-sum-exps that are far apart, close together, very large or small, or -inf (no keys).
std::vector<float> extreme(int64_t count, uint64_t seed) {
  std::vector<float> lse = randn<float>(count, seed, 0, 3);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t kind = (i * 7 + int64_t(seed)) % 6;
    if (kind == 0) lse[size_t(i)] = kNothing;
    if (kind == 1) lse[size_t(i)] *= 1e4f;
    if (kind == 2) lse[size_t(i)] *= 1e30f;
    if (kind == 3) lse[size_t(i)] = 88;
  }
  return lse;
}

}  // namespace

TEMPLATE_TEST_CASE("attention_merge agrees with f64, of scores of any size", "[kernels][attention]",
                   float, bf16, f16) {
  const Size n = GENERATE(Size{0, 3, 2, 8}, Size{1, 1, 1, 1}, Size{2, 5, 3, 20}, Size{1, 33, 2, 64},
                          Size{2, 17, 2, 128}, Size{1, 9, 1, 256});
  const auto sum = randn<float>(n.rows() * n.D, 1);
  const auto part = randn<TestType>(n.rows() * n.D, 2);
  const auto lse = extreme(n.rows(), 3), part_lse = extreme(n.rows(), 4);
  for (const Exec& exec : devices_with({&kernels::attention_merge})) {
    CAPTURE(to_string(exec.device), n.B, n.T, n.D);
    const auto got = merge<TestType>(exec, n, sum, lse, part, part_lse);
    for (int64_t row = 0; row < n.rows(); ++row) {
      const double a = lse[n.lse(row)], b = part_lse[n.lse(row)], top = std::max(a, b);
      const bool sees = top != double(kNothing);
      const double of_a = sees ? std::exp(a - top) : 0, of_b = sees ? std::exp(b - top) : 0;
      const double total = of_a + of_b, want_lse = sees ? top + std::log(total) : top;
      // The error has three sources: exponentials of rounded differences (up to 88, beyond which
      // they are 0), a logarithm, and a sum.
      constexpr double kUnit = 0x1p-24;
      const double weights = 2 * (std::min(std::abs(a - b), 110.0) + 6) * kUnit;
      const float got_lse = got.lse[n.lse(row)];
      if (!sees) CHECK(got_lse == kNothing);
      if (sees) CHECK(std::abs(got_lse - want_lse) <= 2 * kUnit * (std::abs(want_lse) + 2));
      for (int64_t c = row * n.D; c < (row + 1) * n.D; ++c) {
        const double left = sees ? of_a / total * double(sum[size_t(c)]) : 0;
        const double right = sees ? of_b / total * double(to_f32(part[size_t(c)])) : 0;
        const double bound = weights * (std::abs(left) + std::abs(right)) + 1e-37;
        if (!(std::abs(got.sum[size_t(c)] - (left + right)) <= bound)) {
          FAIL("row " << row << ": " << got.sum[size_t(c)] << ", expected " << left + right);
        }
      }
    }
  }
}

TEST_CASE("attention_merge does not look at what saw no key", "[kernels][attention]") {
  const Size n{1, 2, 1, 8};
  const std::vector<float> values(16, 2.f), none(16, std::numeric_limits<float>::quiet_NaN());
  for (const Exec& exec : devices_with({&kernels::attention_merge})) {
    CAPTURE(to_string(exec.device));
    const std::vector<float> seen = {1, 3}, unseen = {kNothing, kNothing};
    CHECK(merge<float>(exec, n, none, unseen, values, seen).sum == values);
    CHECK(merge<float>(exec, n, values, seen, none, unseen).sum == values);
    CHECK(merge<float>(exec, n, none, unseen, none, unseen).sum == std::vector<float>(16, 0.f));
    CHECK(merge<float>(exec, n, values, seen, none, unseen).lse == seen);
    // A NaN with a weight above 0 remains NaN.
    const auto nan = merge<float>(exec, n, values, {none[0], 1}, values, seen);
    CHECK(std::isnan(nan.sum[0]));
    CHECK(nan.sum[8] == Approx(2));
  }
}

TEST_CASE("parts of the keys, merged, are attention of all in f64", "[kernels][attention]") {
  // With the larger spread, scores are several tens, so most queries attend to one key. The parts
  // without that key then have almost no weight.
  const double spread = GENERATE(1.0, 8.0);
  const AttentionShape all = shape_of(2, 37, 90, 4, 2, 32, /*causal=*/false);
  const AttentionInputs<float> in(all, 40, spread);
  const Size n{all.batch, all.queries, all.heads, all.head_size};
  for (const Exec& exec : devices_with({&kernels::attention_merge, &kernels::attention_fwd})) {
    CAPTURE(to_string(exec.device), spread);
    std::vector<float> sum, lse;
    for (const auto& [begin, end] : {std::pair(0, 40), {40, 41}, {41, 90}}) {
      AttentionInputs<float> some(shape_of(2, 37, end - begin, 4, 2, 32, false), 40, spread);
      some.q = in.q, some.dout = in.dout;
      for (auto [to, from] : {std::pair(&some.k, &in.k), std::pair(&some.v, &in.v)}) {
        to->clear();
        const int64_t row = all.kv_heads * all.head_size;
        for (int64_t b = 0; b < all.batch; ++b) {
          const auto first = from->begin() + (b * all.keys + begin) * row;
          to->insert(to->end(), first, first + (end - begin) * row);
        }
      }
      const AttentionResults<float> part = run_attention(exec, some);
      if (begin == 0) {
        sum = part.out, lse = part.lse;
      } else {
        const auto merged = merge<float>(exec, n, sum, lse, part.out, part.lse);
        sum = merged.sum, lse = merged.lse;
      }
    }
    const RefAttention want = in.reference(exec.device);
    // Allows twice the bounds of a single call. Those include the error of the scores. An lse is
    // rounded like a score, so two merges may add as much again.
    CHECK(error_over_bound(to_f64(sum), want.out) <= 2);
    CHECK(error_over_bound(to_f64(lse), want.lse) <= 2);
  }
}

TEST_CASE("attention_merge takes rows of any strides, and any number of threads",
          "[kernels][attention]") {
  const Size n{2, 40, 3, 24};
  const auto sum = randn<float>(n.rows() * n.D, 1), part = randn<float>(n.rows() * n.D, 2);
  const auto lse = extreme(n.rows(), 3), part_lse = extreme(n.rows(), 4);
  // Updates the last 17 queries of each sequence; the other rows must not change.
  constexpr int64_t kFirst = 23, kCount = 17;
  for (const Exec& exec : devices_with({&kernels::attention_merge})) {
    CAPTURE(to_string(exec.device));
    const auto all = merge<float>(exec, n, sum, lse, part, part_lse);
    const DeviceArray<float> y(exec, sum), y_lse(exec, lse), x(exec, part), x_lse(exec, part_lse);
    const auto late = [&](const DeviceArray<float>& from) {
      View view = from.view(n.shape());
      view.data = view.as<float>() + kFirst * n.H * n.D;
      view.shape = {n.B, kCount, n.H, n.D};
      return view;
    };
    const auto late_lse = [&](const DeviceArray<float>& from) {
      View view = from.view({n.B, n.H, n.T});
      view.data = view.as<float>() + kFirst;
      view.shape = {n.B, n.H, kCount};
      return view;
    };
    kernels::attention_merge(
        exec,
        {.sum = late(y), .lse = late_lse(y_lse), .part = late(x), .part_lse = late_lse(x_lse)});
    std::vector<float> want = sum, want_lse = lse;
    for (int64_t row = 0; row < n.rows(); ++row) {
      if (row / n.H % n.T < kFirst) continue;
      want_lse[n.lse(row)] = all.lse[n.lse(row)];
      std::copy_n(all.sum.begin() + row * n.D, n.D, want.begin() + row * n.D);
    }
    CHECK(same_bits(y.download(), want));
    CHECK(same_bits(y_lse.download(), want_lse));
    CHECK(same_bits_for_any_threads(exec, [&](const Exec& with) {
      return merge<float>(with, n, sum, lse, part, part_lse).sum;
    }));
  }
}

}  // namespace shale::test
