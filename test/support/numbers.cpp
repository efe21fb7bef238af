#include "shale/test/support/numbers.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "shale/base/rng.h"

namespace shale::test {
namespace {

PhiloxCounter words(uint64_t seed, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  return philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0},
                rng_key(seed, RngDomain::kTest));
}

double uniform53(uint32_t high, uint32_t low) {
  return double(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace

double uniform_at(uint64_t seed, int64_t index) {
  const PhiloxCounter w = words(seed, index);
  return uniform53(w[0], w[1]);
}

double normal_at(uint64_t seed, int64_t index) {
  const PhiloxCounter w = words(seed, index);
  const double radius = std::sqrt(-2 * std::log1p(-uniform53(w[0], w[1])));
  return radius * std::cos(2 * std::numbers::pi * uniform53(w[2], w[3]));
}

double max_abs(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double max_error(const std::vector<double>& got, const std::vector<double>& want) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (got.size() != want.size()) return kInf;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double error = std::abs(got[i] - want[i]);
    if (!std::isfinite(error)) return kInf;  // std::max() would ignore a NaN
    largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace shale::test
