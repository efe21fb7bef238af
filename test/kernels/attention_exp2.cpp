// Tests the exponentials that Hopper's forward attention computes with FMA instructions.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "shale/kernels/cuda/attention/attention90_exp2.cuh"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using kernels::emu::exp2_by_fma;

// Returns the largest relative error of exp2_by_fma for y in [first, last] / 2^24.
double largest_error(int64_t first, int64_t last) {
  double worst = 0;
  for (int64_t i = first; i <= last; ++i) {
    const double y = std::ldexp(static_cast<double>(i), -24);
    const double want = std::exp2(64 * y - 56);
    worst = std::max(worst, std::fabs(exp2_by_fma(static_cast<float>(y)) / want - 1));
  }
  return worst;
}

}  // namespace

// Tests all f32 in [1/2, 1], which cover powers from -24 to 8, and as many values between 0 and
// 1/2. The polynomial's error is below 2^-13.7; its coefficients and four operations round in f32.
// bf16 and f16 results round by up to 2^-9 and 2^-12.
TEST_CASE("exponentials by FMA are four times as exact as probabilities are rounded",
          "[attention]") {
  const double error = largest_error(0, int64_t{1} << 24);
  CHECK(error < 7.48e-5 + 0x1p-21);
  CHECK(error > 0x1p-14);  // shows that the polynomial was used
}

TEST_CASE("exponentials by FMA are clamped to their range", "[attention]") {
  using kernels::emu::simt::fma_saturated;
  const auto power = [](float x) { return exp2_by_fma(fma_saturated(x, 1 / 64.f, 56 / 64.f)); };
  CHECK(std::fabs(power(0) - 1) < 0x1p-13);
  CHECK(std::fabs(power(8) / 256 - 1) < 0x1p-13);
  CHECK(power(-57) == power(-1e30f));
  CHECK(power(-INFINITY) < 0x1p-55f);
  CHECK(power(9) == power(8));
}

}  // namespace shale::test
