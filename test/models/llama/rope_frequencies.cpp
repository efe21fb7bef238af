// Compares RoPE frequencies for published settings with independently computed numbers.
#include <cmath>
#include <vector>

#include "shale/runtime/ops/rope.h"
#include "shale/test/support/catch.h"

namespace shale {
namespace {

// The expected numbers have 9 digits.
void check(double found, double want) {
  CHECK(std::abs(found / want - 1) <= 1e-8);
}

}  // namespace

TEST_CASE("frequencies fall from 1 by powers of theta, and linear scaling divides them") {
  const std::vector<double> plain = rope_frequencies({.theta = 1e4}, 8);
  const std::vector<double> linear =
      rope_frequencies({.theta = 1e4, .scaling = RopeScaling::kLinear, .factor = 4}, 8);
  REQUIRE(plain.size() == 4);
  REQUIRE(linear.size() == 4);
  for (size_t i = 0; i < plain.size(); ++i) {
    check(plain[i], std::pow(10, -double(i)));
    check(linear[i], plain[i] / 4);
  }
}

TEST_CASE("frequencies of Llama 3.2 are kept, blended or divided by wavelength") {
  RopeConfig config{.theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 32};
  config.original_context = 8192;
  const std::vector<double> f = rope_frequencies(config, 64);
  REQUIRE(f.size() == 32);
  check(f[13], 0.00483942135);  // short wavelength: the frequency is kept
  check(f[15], 0.00129054793);  // between the limits: the frequency is blended
  check(f[16], 0.000429556797);
  check(f[17], 9.7082878e-05);
  check(f[18], 1.94616382e-05);  // long wavelength: the frequency is divided
  check(f[31], 9.41830673e-08);
}

TEST_CASE("frequencies and scale of Qwen's YaRN are those of the paper's formulas") {
  RopeConfig config{.theta = 1e6, .scaling = RopeScaling::kYarn, .factor = 4};
  config.original_context = 32768;
  const std::vector<double> f = rope_frequencies(config, 128);
  REQUIRE(f.size() == 64);
  // Short wavelengths: kept.
  for (size_t i = 0; i <= 23; ++i) check(f[i], std::pow(1e6, -2.0 * double(i) / 128));
  check(f[31], 0.000802959728);
  check(f[40], 4.44569853e-05);
  check(f[63], 3.1023444e-07);
  CHECK(RopeTable(config, 128).scale() == 1.138629436f);
  config.attention_factor = 1.5;
  CHECK(RopeTable(config, 128).scale() == 1.5f);
}

}  // namespace shale
