#include "shale/kernels/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/op_check.h"

namespace shale {
namespace {

using test::DeviceArray;

// The number of a code, by the format's definition: it shares nothing with the kernel.
double number_of(int code) {
  const double sign = (code & 128) != 0 ? -1 : 1;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * mantissa * std::exp2(-9);
  return sign * (8 + mantissa) * std::exp2(exponent - 10);
}

// The nearest of all numbers; of two as near, that of the even code.
double nearest(double x) {
  int best = 0;
  for (int code = 0; code < 256; ++code) {
    const double found = std::abs(number_of(code) - x), least = std::abs(number_of(best) - x);
    if (found < least || (found == least && code % 2 == 0 && best % 2 == 1)) best = code;
  }
  return number_of(best);
}

// The same in f64, block by block.
template <typename T>
std::vector<double> expected(const std::vector<T>& x, const kernels::RoundToFp8Args& a) {
  const int64_t rows = a.x.size(0), columns = a.x.size(1);
  std::vector<double> y(x.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t r = row / a.block_rows * a.block_rows;
      const int64_t c = column / a.block_columns * a.block_columns;
      double largest = 0;
      for (int64_t i = r; i < std::min(rows, r + a.block_rows); ++i) {
        for (int64_t j = c; j < std::min(columns, c + a.block_columns); ++j) {
          largest = std::max(largest, std::abs(test::to_f64(x[size_t(i * columns + j)])));
        }
      }
      const double scale = largest == 0 ? 1 : std::exp2(std::ceil(std::log2(largest / 448)));
      const auto at = size_t(row * columns + column);
      y[at] = nearest(test::to_f64(x[at]) / scale) * scale;
    }
  }
  return y;
}

}  // namespace

TEST_CASE("round_to_e4m3 keeps all codes, and rounds halfway points to even ones", "[kernels]") {
  for (int code = 0; code < 256; ++code) {
    const double x = number_of(code);
    const float found = kernels::round_to_e4m3(float(x));
    CAPTURE(code, x, found);
    if (std::isnan(x)) {
      CHECK(std::isnan(found));
      continue;
    }
    CHECK(double(found) == x);
    const double next = number_of(code + 1);
    if (code % 128 >= 126) continue;  // the next code is no number
    const auto half = float((x + next) / 2);
    CHECK(double(kernels::round_to_e4m3(half)) == (code % 2 == 0 ? x : next));
    CHECK(double(kernels::round_to_e4m3(std::nextafter(half, float(x)))) == x);
    CHECK(double(kernels::round_to_e4m3(std::nextafter(half, float(next)))) == next);
  }
}

TEST_CASE("a scale is the least power of two that brings a magnitude to 448", "[kernels]") {
  const auto exponent = [](float x) { return kernels::e4m3_exponent(std::bit_cast<uint32_t>(x)); };
  CHECK(exponent(448.0f) == 0);
  CHECK(exponent(std::nextafter(448.0f, 1e9f)) == 1);
  CHECK(exponent(224.0f) == -1);
  CHECK(exponent(1.0f) == -8);
  CHECK(exponent(0.0f) == -100);
  CHECK(std::isnan(kernels::power_of_two(exponent(std::numeric_limits<float>::infinity()))));
}

TEMPLATE_TEST_CASE("round_to_fp8 has each block's scale on every device", "[kernels]", float,
                   bf16) {
  const auto [block_rows, block_columns] =
      GENERATE(std::pair<int64_t, int64_t>{1, 128}, std::pair<int64_t, int64_t>{128, 1},
               std::pair<int64_t, int64_t>{128, 128});
  for (const Exec& exec : test::devices_with({&kernels::round_to_fp8})) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{0, 128}, {1, 1}, {3, 200}, {130, 129}}) {
      CAPTURE(to_string(exec.device), rows, columns, block_rows, block_columns);
      std::vector<TestType> values = test::randn<TestType>(rows * columns, 7);
      // Blocks of other magnitudes beside each other.
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = TestType(float(test::to_f64(values[i])) * (i / 128 % 3 == 1 ? 1e-4f : 3.0f));
      }
      const DeviceArray<TestType> x(exec, values);
      const DeviceArray<TestType> y(exec, rows * columns);
      const kernels::RoundToFp8Args args = {.x = x.view({rows, columns}),
                                            .y = y.view({rows, columns}),
                                            .block_rows = block_rows,
                                            .block_columns = block_columns};
      const std::vector<double> want = expected(values, args);
      for (const int threads : {1, 3}) {
        kernels::round_to_fp8(test::with_threads(exec, threads), args);
        CHECK(y.margins_intact());
        const std::vector<TestType> found = y.download();
        for (size_t i = 0; i < found.size(); ++i) REQUIRE(test::to_f64(found[i]) == want[i]);
      }
    }
  }
}

TEST_CASE("round_to_fp8 makes NaN of all of a block that is not finite", "[kernels]") {
  for (const Exec& exec : test::devices_with({&kernels::round_to_fp8})) {
    std::vector<float> values(384, 1.0f);
    values[5] = std::numeric_limits<float>::infinity();
    values[300] = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> x(exec, values), y(exec, std::vector<float>(384, 0.0f));
    kernels::round_to_fp8(exec, {.x = x.view({3, 128}), .y = y.view({3, 128})});
    const std::vector<float> found = y.download();
    for (size_t i = 0; i < found.size(); ++i) {
      REQUIRE((i / 128 == 1 ? found[i] == 1.0f : std::isnan(found[i])));
    }
  }
}

}  // namespace shale
