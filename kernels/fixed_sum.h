#pragma once

#include <cstdint>

namespace shale::kernels {

// A sum of non-negative f64 values whose result does not depend on the order of the additions:
// 128-bit fixed point with 80 bits after the point. Holds sums up to 2^47; what does not fit, or is
// not finite, or negative, is counted instead of added; digits below 2^-80 are cut off. Plain data,
// so that it can live in device memory and be added across ranks.
struct FixedSum {
  uint64_t low = 0;
  uint64_t high = 0;
  uint64_t bad = 0;  // values that were infinite, NaN or too large

  void add(double value);
  void add(const FixedSum& other);
  double value() const;  // +inf if anything was bad
};

}  // namespace shale::kernels
