#include "shale/kernels/fixed_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"

namespace shale {
namespace {

using kernels::FixedSum;

FixedSum sum_of(const std::vector<double>& values) {
  FixedSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

bool same(const FixedSum& a, const FixedSum& b) {
  return a.low == b.low && a.high == b.high && a.bad == b.bad;
}

}  // namespace

TEST_CASE("a FixedSum holds every value of up to 53 bits that fits, exactly",
          "[kernels][fixed_sum]") {
  for (const double value : {0.0, 1.0, 0x1p-80, 3 * 0x1p-80, 0x1.fffffffffffffp46, 0x1p46, 0x1p-28,
                             0x1.8000000000001p-28, 0x1p-16, 0x1.23456789abcdep-17, 1e-12, 1e9}) {
    CAPTURE(value);
    // Bits below the last one, 2^-80, are cut off.
    CHECK(sum_of({value}).value() == std::ldexp(std::floor(std::ldexp(value, 80)), -80));
  }
  CHECK(sum_of({-0.0, 5e-324, 0x1p-81, 0x1p-200}).value() == 0);
}

TEST_CASE("a FixedSum carries from its lower to its upper word", "[kernels][fixed_sum]") {
  FixedSum sum;
  sum.low = ~uint64_t{0};
  sum.add(0x1p-80);
  CHECK((sum.low == 0 && sum.high == 1));
  FixedSum other;
  other.low = ~uint64_t{0};
  other.add(other);
  CHECK((other.low == ~uint64_t{1} && other.high == 1));
}

TEST_CASE("a FixedSum does not depend on the order of additions", "[kernels][fixed_sum]") {
  std::vector<double> values;
  for (int64_t i = 0; i < 1000; ++i) {
    values.push_back(
        std::abs(std::ldexp(test::normal_at(1, i), int(test::uniform_at(2, i) * 90) - 50)));
  }
  const FixedSum forwards = sum_of(values);
  std::reverse(values.begin(), values.end());
  CHECK(same(sum_of(values), forwards));
  FixedSum parts;
  for (size_t i = 0; i < values.size(); i += 100) {
    parts.add(sum_of({values.begin() + int64_t(i), values.begin() + int64_t(i) + 100}));
  }
  CHECK(same(parts, forwards));
}

TEST_CASE("a FixedSum counts what it cannot hold", "[kernels][fixed_sum]") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double bad : {kInf, -kInf, std::nan(""), 0x1p47, 1e300, -1.0}) {
    FixedSum sum = sum_of({1.0, bad, 2.0});
    CHECK(sum.bad == 1);
    CHECK(sum.value() == kInf);
    CHECK(sum_of({3.0}).low == sum.low);
    FixedSum total;
    total.add(sum);
    CHECK(total.value() == kInf);
  }
  // The sum of two values that fit may overflow.
  CHECK(sum_of({0x1p46, 0x1p46}).value() == kInf);
  CHECK(sum_of({0x1p46, 0x1p46, 0x1p46, 0x1p46, 1.0}).value() == kInf);
}

}  // namespace shale
