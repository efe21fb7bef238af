#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/views/run_data.h"

namespace shale::models {

// Largest magnitude of a value in a curve: sums, differences and multiples of such values are
// finite.
inline constexpr double kLargestValue = 1e200;

// A value over the steps of a run. Steps ascend; no value exceeds kLargestValue.
struct CurvePoint {
  int64_t step = 0;
  double value = 0;

  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};
using CurvePoints = std::vector<CurvePoint>;

// The values of this column. Rows without a value, with NaN or one beyond kLargestValue are left
// out.
CurvePoints curve_of(const RunData& run, std::optional<double> StepMetrics::*column);
CurvePoints curve_of(const RunData& run, std::optional<int64_t> StepMetrics::*column);
// The losses of training, and of validations.
CurvePoints loss_curve(const RunData& run);
CurvePoints validation_curve(const RunData& run);

// Each point the mean of all, weighted with `decay` to the power of how many points away they are:
// from both sides, so that the curve does not lag behind what it smooths.
CurvePoints smoothed(const CurvePoints& points, double decay);

// At most 2 * `buckets` points, of each of so many stretches of steps the least and the most, in
// the order of their steps: what a picture that is `buckets` wide shows of the curve.
CurvePoints thinned(const CurvePoints& points, size_t buckets);

// Position of `value` between `low` and `high`, which are 0 and 1: never outside, whatever the
// arguments are. 0.5 unless low < high.
double position_in(double value, double low, double high);

// Round numbers, at most seven, that lie in [low, high] with equal spaces: the marks of an axis.
std::vector<double> axis_marks(double low, double high);

}  // namespace shale::models
