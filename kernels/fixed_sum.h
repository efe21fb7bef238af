#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace shale::kernels {

// A sum of non-negative f64 values whose result does not depend on the order of the additions:
// 128-bit fixed point with 80 fraction bits. Holds sums up to 2^47. Values that are too large, not
// finite or negative are counted in `bad` instead of added; digits below 2^-80 are cut off. Plain
// data that can be in device memory and be added across ranks; constexpr, for use in kernels.
struct FixedSum {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t bad = 0;  // number of values that were infinite, NaN, negative or too large

  constexpr void add(double value);
  constexpr void add(const FixedSum& other);
  constexpr double value() const;  // infinity if `bad` is not 0

 private:
  static constexpr int kFractionBits = 80;
  static constexpr int kMaxExponent = 47;  // limit: values must be below 2^47
};

constexpr void FixedSum::add(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  if (bits << 1 == 0) return;  // +0 or -0
  // Infinities and NaN have the largest exponent. A negative value is an error of the caller.
  if ((bits >> 63) != 0 || biased >= 1023 + kMaxExponent) {
    ++bad;
    return;
  }
  if (biased == 0) return;  // subnormal: far below 2^-80
  const uint64_t mantissa = fraction | (uint64_t{1} << 52);
  // value = mantissa * 2^(biased - 1075). The digits that are cut off depend only on this value, so
  // the sum does not depend on the order.
  const int shift = biased - 1075 + kFractionBits;
  FixedSum term;
  if (shift <= -64) return;
  if (shift < 0) {
    term.low = mantissa >> -shift;
  } else if (shift < 64) {
    term.low = mantissa << shift;
    term.high = shift == 0 ? 0 : mantissa >> (64 - shift);
  } else {
    term.high = mantissa << (shift - 64);
  }
  add(term);
}

constexpr void FixedSum::add(const FixedSum& other) {
  const uint64_t low_sum = low + other.low;
  const uint64_t carry = low_sum < low ? 1 : 0;
  const uint64_t high_part = high + other.high;
  const uint64_t high_sum = high_part + carry;
  const bool wrapped = high_part < high || high_sum < high_part;
  low = low_sum;
  high = high_sum;
  // The number of overflows depends only on the total, not on the order.
  bad += other.bad + (wrapped ? 1 : 0);
}

constexpr double FixedSum::value() const {
  if (bad != 0 || (high >> 63) != 0) return std::numeric_limits<double>::infinity();
  // The conversion to f64 rounds at most twice; equal sums give equal results.
  const double upper = static_cast<double>(high) * 0x1p-16;  // 2^64 / 2^80
  return upper + static_cast<double>(low) * 0x1p-80;
}

}  // namespace shale::kernels
