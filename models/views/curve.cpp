#include "shale/models/views/curve.h"

#include <algorithm>
#include <cmath>

namespace shale::models {
namespace {

void add(CurvePoints& points, int64_t step, double value) {
  if (std::abs(value) <= kLargestValue) points.push_back({step, value});
}

template <typename Value>
CurvePoints column_of(const RunData& run, std::optional<Value> StepMetrics::*column) {
  CurvePoints points;
  for (const StepMetrics& row : run.steps) {
    if (row.*column) add(points, row.step, static_cast<double>(*(row.*column)));
  }
  return points;
}

}  // namespace

CurvePoints curve_of(const RunData& run, std::optional<double> StepMetrics::*column) {
  return column_of(run, column);
}

CurvePoints curve_of(const RunData& run, std::optional<int64_t> StepMetrics::*column) {
  return column_of(run, column);
}

CurvePoints loss_curve(const RunData& run) {
  CurvePoints points;
  for (const StepMetrics& row : run.steps) add(points, row.step, double{row.loss});
  return points;
}

CurvePoints validation_curve(const RunData& run) {
  CurvePoints points;
  for (const EvalMetrics& row : run.evals) add(points, row.step, double{row.val_loss});
  return points;
}

CurvePoints smoothed(const CurvePoints& points, double decay) {
  struct Mean {
    double sum = 0, weights = 0;
  };
  // Averages each point with those before it; nearer points have larger weights.
  const auto means = [decay](auto begin, auto end) {
    std::vector<Mean> result;
    Mean mean;
    for (auto point = begin; point != end; ++point) {
      result.push_back(mean);
      mean = {decay * (mean.sum + point->value), decay * (mean.weights + 1)};
    }
    return result;
  };
  const std::vector<Mean> before = means(points.begin(), points.end());
  const std::vector<Mean> after = means(points.rbegin(), points.rend());
  CurvePoints result;
  result.reserve(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    const Mean &a = before[i], &b = after[points.size() - 1 - i];
    result.push_back(
        {points[i].step, (a.sum + points[i].value + b.sum) / (a.weights + 1 + b.weights)});
  }
  return result;
}

CurvePoints thinned(const CurvePoints& points, size_t buckets) {
  if (points.size() <= 2 * buckets) return points;
  CurvePoints result;
  const auto by_value = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
  for (size_t i = 0; i < buckets; ++i) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(i * points.size() / buckets);
    const auto end = points.begin() + static_cast<ptrdiff_t>((i + 1) * points.size() / buckets);
    const auto [least, most] = std::minmax_element(begin, end, by_value);
    result.push_back(*std::min(least, most));
    if (least->value != most->value) result.push_back(*std::max(least, most));
  }
  return result;
}

double position_in(double value, double low, double high) {
  if (!(low < high)) return 0.5;
  // Halves the values, because the difference of two finite numbers can overflow.
  const double position = (value / 2 - low / 2) / (high / 2 - low / 2);
  return position > 0 ? std::min(position, 1.0) : 0;  // 0 for NaN too
}

std::vector<double> axis_marks(double low, double high) {
  constexpr int kMost = 7;
  double space = std::pow(10, std::floor(std::log10((high - low) / 6)));
  // space is 0 or infinite if the range exceeds the precision of a double.
  if (!(low < high && space > 0 && std::isfinite(space))) return {low};
  for (const double factor : {2.0, 2.5, 2.0}) {  // yields 1, 2, 5, 10 times a power of ten
    if ((high - low) / space <= 6) break;
    space *= factor;
  }
  std::vector<double> marks;
  const double first = std::ceil(low / space);
  // Counts with an integer, because adding 1 to a double above 2^53 may not change it.
  for (int i = 0; i < kMost; ++i) {
    const double mark = (first + i) * space;
    if (!(mark <= high + space * 1e-9)) break;
    if (marks.empty() || mark > marks.back()) marks.push_back(mark == 0 ? 0 : mark);  // avoids -0
  }
  return marks;
}

}  // namespace shale::models
