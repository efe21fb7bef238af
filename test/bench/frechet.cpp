#include "shale/bench/support/frechet.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"

namespace shale::test {

using bench::frechet_distance;
using bench::Moments;

TEST_CASE("moments of rows are their mean and covariance") {
  const std::vector<float> rows = {1, 2, 3, 2, 5, 8};  // (1, 2), (3, 2), (5, 8)
  const Moments m = bench::moments_of(rows, 2);
  CHECK(m.mean == std::vector<double>{3, 4});
  CHECK(m.covariance == std::vector<double>{4, 6, 6, 12});
  CHECK(m.variance() == 16);
  CHECK_THROWS_AS(bench::moments_of(std::vector<float>{1, 2}, 2), ConfigError);
}

TEST_CASE("the distance of two normal distributions is the formula's") {
  const Moments a{.mean = {1, 2}, .covariance = {2, 1, 1, 2}};
  const Moments b{.mean = {0, 4}, .covariance = {1, 0, 0, 3}};
  // Of 2 x 2 the trace of the root of AB is sqrt(tr AB + 2 sqrt(det AB)): tr AB = 8, det AB = 9.
  const double want = 5 + 4 + 4 - 2 * std::sqrt(14.);
  CHECK(frechet_distance(a, b) == Approx(want).epsilon(1e-12));
  CHECK(frechet_distance(b, a) == Approx(want).epsilon(1e-12));
  CHECK(std::abs(frechet_distance(a, a)) < 1e-12);
  CHECK_THROWS_AS(frechet_distance(a, {.mean = {1}, .covariance = {1}}), ConfigError);
}

TEST_CASE("a distance survives features without variance, and many features") {
  const Moments flat{.mean = {0, 0}, .covariance = {0, 0, 0, 0}};
  const Moments wide{.mean = {3, 0}, .covariance = {4, 0, 0, 1}};
  CHECK(frechet_distance(flat, wide) == Approx(14));
  constexpr int64_t kSize = 24, kRows = 100;
  const std::vector<float> x = randn<float>(kSize * kRows, 1);
  std::vector<float> twice = x;
  for (float& value : twice) value *= 2;
  const Moments one = bench::moments_of(x, kSize), two = bench::moments_of(twice, kSize);
  double want = 0;  // a covariance of 4 A, whose root with A is 2 A
  for (int64_t i = 0; i < kSize; ++i) {
    want += one.mean[size_t(i)] * one.mean[size_t(i)] + one.covariance[size_t(i * (kSize + 1))];
  }
  CHECK(frechet_distance(one, two) == Approx(want).epsilon(1e-9));
}

}  // namespace shale::test
