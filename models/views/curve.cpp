#include "shale/models/views/curve.h"

#include <algorithm>
#include <cmath>

namespace shale::models {
void Column::add(int64_t step, std::optional<double> value) {
  if (step <= newest_step_) drop_from(step);
  newest_step_ = step;
  newest_ = value && std::abs(*value) <= kLargestValue ? value : std::nullopt;
  if (!newest_) return;
  const double known = newest_known_ = *newest_;
  if (points_.empty() || points_.back().first / width_ != step / width_) {
    points_.push_back({step, step, known, known, known, 1});
    while (points_.size() > kMostPoints) merge_neighbours();
    return;
  }
  Point& point = points_.back();
  point = {point.first,
           step,
           point.sum + known,
           std::min(point.least, known),
           std::max(point.most, known),
           point.count + 1};
}

void Column::drop_from(int64_t step) {
  while (!points_.empty() && points_.back().first >= step) points_.pop_back();
  newest_step_ = std::min(newest_step_, step - 1);
  newest_.reset();
  newest_known_ = points_.empty() ? 0 : points_.back().mean();
}

void Column::merge_neighbours() {
  width_ *= 2;
  size_t kept = 0;
  for (const Point& point : points_) {
    Point* const before = kept > 0 ? &points_[kept - 1] : nullptr;
    if (before == nullptr || before->first / width_ != point.first / width_) {
      points_[kept++] = point;
    } else {
      *before = {before->first,
                 point.last,
                 before->sum + point.sum,
                 std::min(before->least, point.least),
                 std::max(before->most, point.most),
                 before->count + point.count};
    }
  }
  points_.resize(kept);
}

CurvePoints curve_of(const Column& column) {
  CurvePoints curve;
  for (const Column::Point& point : column.points()) curve.push_back({point.last, point.mean()});
  return curve;
}

CurvePoints smoothed(const CurvePoints& points) {
  const double decay = 1 - 1 / std::max(1.0, static_cast<double>(points.size()) / 100);
  struct Mean {
    double sum = 0, weights = 0;
  };
  // Averages each point with the points before it. Nearer points have larger weights.
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
  for (const double factor : {2.0, 2.5, 2.0}) {  // multiplies a power of ten by 1, 2, 5, 10
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
