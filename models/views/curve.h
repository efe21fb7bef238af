#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/views/run_data.h"

namespace shale::models {

// Maximum magnitude of a value in a curve, so that sums, differences and small multiples of values
// are finite.
inline constexpr double kLargestValue = 1e200;

// A value at a step of a run. Steps ascend; no value exceeds kLargestValue.
struct CurvePoint {
  int64_t step = 0;
  double value = 0;

  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};
using CurvePoints = std::vector<CurvePoint>;

// Returns the values of a column. Omits rows without a value, with NaN, or beyond kLargestValue.
CurvePoints curve_of(const RunData& run, std::optional<double> StepMetrics::*column);
CurvePoints curve_of(const RunData& run, std::optional<int64_t> StepMetrics::*column);
// Return the training losses, and the validation losses.
CurvePoints loss_curve(const RunData& run);
CurvePoints validation_curve(const RunData& run);

// Replaces each value by a weighted mean of all values; those n points away have weight decay^n.
// Using both sides keeps the result from lagging behind the curve.
CurvePoints smoothed(const CurvePoints& points, double decay);

// Returns at most 2 * `buckets` points: the minimum and maximum of each range of steps, in step
// order. A picture of width `buckets` cannot show more.
CurvePoints thinned(const CurvePoints& points, size_t buckets);

// Returns the position of `value` between `low` (0) and `high` (1), clamped to [0, 1]; 0.5 unless
// low < high.
double position_in(double value, double low, double high);

// Returns at most seven equally spaced round numbers in [low, high]: the marks of an axis.
std::vector<double> axis_marks(double low, double high);

}  // namespace shale::models
