#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "shale/base/dtype.h"

namespace shale::test {

// ---- Test data from Philox, so that a test has the same numbers on every machine ----

double uniform_at(uint64_t seed, int64_t index);  // returns a pseudo-random number in [0, 1)
double normal_at(uint64_t seed, int64_t index);

template <typename T>
T make(double value) {
  return static_cast<T>(static_cast<float>(value));
}
template <>
inline double make<double>(double value) {
  return value;
}

template <typename T>
std::vector<T> randn(int64_t n, uint64_t seed, double mean = 0, double std = 1) {
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[size_t(i)] = make<T>(mean + std * normal_at(seed, i));
  return values;
}

// Returns integers in [low, high]. Their sums are exact, so results can be compared exactly.
template <typename T>
std::vector<T> rand_int(int64_t n, uint64_t seed, int64_t low, int64_t high) {
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto step = static_cast<int64_t>(uniform_at(seed, i) * double(high - low + 1));
    if constexpr (std::is_integral_v<T>) {
      values[size_t(i)] = static_cast<T>(low + step);
    } else {
      values[size_t(i)] = make<T>(double(low + step));
    }
  }
  return values;
}

template <typename T>
double to_f64(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return to_f32(value);
  }
}

template <typename T>
std::vector<double> to_f64(const std::vector<T>& values) {
  std::vector<double> wide;
  wide.reserve(values.size());
  for (const T& value : values) wide.push_back(to_f64(value));
  return wide;
}

// ---- References ----
// A reference takes a rounding function and applies it to every intermediate that a kernel may
// round. With Exact it gives the exact values; with RoundTo<float> it shows the rounding error.

struct Exact {
  double operator()(double x) const { return x; }
};
template <typename T>
struct RoundTo {
  double operator()(double x) const { return to_f64(make<T>(x)); }
};

// Distance from 1 to the next larger number of type T.
template <typename T>
constexpr double ulp() {
  if constexpr (std::is_same_v<T, float>) return 0x1p-23;
  if constexpr (std::is_same_v<T, bf16>) return 0x1p-7;
  if constexpr (std::is_same_v<T, f16>) return 0x1p-10;
  return 0x1p-52;
}

double max_abs(const std::vector<double>& values);

// Largest |got - want|; +inf if only one of the two is NaN, infinities differ, or lengths differ.
double max_error(const std::vector<double>& got, const std::vector<double>& want);
template <typename T>
double max_error(const std::vector<T>& got, const std::vector<double>& want) {
  return max_error(to_f64(got), want);
}

// Returns the error of `got`, divided by the allowed error; at most 1 passes. Allowed are twice the
// error of the rounded reference plus `ulps` roundings to T of the largest magnitude.
template <typename T>
double error_ratio(const std::vector<T>& got, const std::vector<double>& exact,
                   const std::vector<double>& rounded, double ulps) {
  const double allowed = 2 * max_error(rounded, exact) + ulps * ulp<T>() * max_abs(exact);
  const double error = max_error(got, exact);
  return error == 0 ? 0 : error / allowed;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace shale::test
