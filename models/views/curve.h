#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace shale::models {

// Maximum magnitude of a value in a curve, so that sums, differences and small multiples of values
// are finite.
inline constexpr double kLargestValue = 1e200;

// Values of one key of metrics.jsonl over the steps, in bounded memory: with more than kMostPoints
// points, points of neighbouring steps are merged.
class Column {
 public:
  static constexpr size_t kMostPoints = 1024;

  // Steps `first` to `last`, of which `count` have known values.
  struct Point {
    int64_t first = 0, last = 0;
    double sum = 0, least = 0, most = 0;
    int64_t count = 0;

    double mean() const { return sum / static_cast<double>(count); }
  };

  // Adds a row. Steps are at least 0. If the step is not larger than the previous one, the rows
  // from this step on are removed first, because a resumed run repeats them. A value that is
  // missing, NaN or beyond kLargestValue is unknown.
  void add(int64_t step, std::optional<double> value);
  void drop_from(int64_t step);

  const std::vector<Point>& points() const { return points_; }
  // newest_step() returns the step of the newest row, -1 if there is none. newest() returns its
  // value; nullopt: unknown.
  int64_t newest_step() const { return newest_step_; }
  std::optional<double> newest() const { return newest_; }
  // Returns the newest known value. points().back() may be a mean instead. points() must not be
  // empty.
  double newest_known() const { return newest_known_; }

 private:
  void merge_neighbours();

  std::vector<Point> points_;
  // Number of steps per point: point k covers steps [k * width_, (k + 1) * width_).
  int64_t width_ = 1;
  int64_t newest_step_ = -1;
  std::optional<double> newest_;
  double newest_known_ = 0;
};

// A value at a step of a run.
struct CurvePoint {
  int64_t step = 0;
  double value = 0;

  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};
using CurvePoints = std::vector<CurvePoint>;

// Returns the mean value of each point of a column.
CurvePoints curve_of(const Column& column);

// Replaces each value by a weighted mean of all values. About a hundredth of the points on each
// side have the most weight. Points on both sides are used, so that the result does not lag behind
// the curve.
CurvePoints smoothed(const CurvePoints& points);

// Returns the position of `value` between `low` (0) and `high` (1), clamped to [0, 1]; 0.5 unless
// low < high.
double position_in(double value, double low, double high);

// Returns at most seven equally spaced round numbers in [low, high]: the marks of an axis.
std::vector<double> axis_marks(double low, double high);

}  // namespace shale::models
