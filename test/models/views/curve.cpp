#include "shale/models/views/curve.h"

#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"

namespace shale::models {

TEST_CASE("a curve has the steps whose value is known and finite", "[curve]") {
  RunData run;
  run.steps = {{.step = 1, .loss = 4, .lr = 0.5},
               {.step = 2, .loss = std::numeric_limits<float>::quiet_NaN()},
               {.step = 3, .loss = 2, .lr = std::numeric_limits<double>::infinity()}};
  run.evals = {{.step = 3, .val_loss = 2.5f}};
  CHECK(loss_curve(run) == CurvePoints{{1, 4}, {3, 2}});
  CHECK(curve_of(run, &StepMetrics::lr) == CurvePoints{{1, 0.5}});
  CHECK(curve_of(run, &StepMetrics::device_peak_bytes).empty());
  CHECK(validation_curve(run) == CurvePoints{{3, 2.5}});
  run.steps = {{.step = 1, .lr = 1e308}, {.step = 2, .lr = -1e308}, {.step = 3, .lr = 1e200}};
  CHECK(curve_of(run, &StepMetrics::lr) == CurvePoints{{3, 1e200}});
}

TEST_CASE("smoothing looks to both sides and keeps a line", "[curve]") {
  const CurvePoints mean = smoothed({{1, 4}, {2, 4}, {5, 1}}, 0.5);
  REQUIRE(mean.size() == 3);
  CHECK(mean[0].value == Approx((4 + 4 * 0.5 + 1 * 0.25) / 1.75));
  CHECK(mean[1].value == Approx((4 * 0.5 + 4 + 1 * 0.5) / 2));
  CHECK(mean[2].value == Approx((4 * 0.25 + 4 * 0.5 + 1) / 1.75));
  CHECK(mean[2].step == 5);
  // Smoothing must leave a straight line unchanged, except near its ends: the result does not lag.
  CurvePoints line;
  for (int64_t step = 0; step < 201; ++step) line.push_back({step, static_cast<double>(step)});
  CHECK(smoothed(line, 0.9)[100].value == Approx(100));
  CHECK(smoothed(line, 0) == line);
  CHECK(smoothed({}, 0.5).empty());
}

TEST_CASE("thinning keeps every peak, the order and at most two points a bucket", "[curve]") {
  CurvePoints points;
  for (int64_t step = 1; step <= 1000; ++step) points.push_back({step, std::sin(0.1 * step)});
  points[500].value = 7;
  points[501].value = -7;
  const CurvePoints few = thinned(points, 10);
  CHECK(few.size() <= 20);
  int peaks = 0;
  for (size_t i = 0; i < few.size(); ++i) {
    if (i > 0) CHECK(few[i - 1].step < few[i].step);
    if (std::abs(few[i].value) == 7) ++peaks;
  }
  CHECK(peaks == 2);
  CHECK(thinned(points, 500) == points);
  // All points of a flat bucket become one point.
  CHECK(thinned(CurvePoints(30, {1, 1}), 10).size() == 10);
}

TEST_CASE("marks of an axis are round, inside, and few", "[curve]") {
  CHECK(axis_marks(0, 10) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(axis_marks(2.3, 2.3) == std::vector<double>{2.3});
  for (const double high : {1e-7, 0.31, 1.0, 7.3, 59.0, 1e9}) {
    const auto marks = axis_marks(high / 9, high);
    CAPTURE(high, marks.size());
    CHECK(marks.size() >= 2);
    CHECK(marks.size() <= 7);
    CHECK(marks.front() >= high / 9 * (1 - 1e-9));
    CHECK(marks.back() <= high * (1 + 1e-9));
  }
}

TEST_CASE("marks of an axis are few and ascend for any range", "[curve]") {
  using Real = std::numeric_limits<double>;
  const std::vector<std::pair<double, double>> ranges = {{1e16, 1e16 + 2},
                                                         {-1e16 - 2, -1e16},
                                                         {9e18, 0x1p63},
                                                         {-1e308, 1e308},
                                                         {1e308, 1.1e308},
                                                         {0, Real::denorm_min()},
                                                         {1, 1 + 0x1p-52},
                                                         {1, 0},
                                                         {0, Real::infinity()},
                                                         {Real::quiet_NaN(), 1},
                                                         {-Real::infinity(), Real::infinity()}};
  for (const auto& [low, high] : ranges) {
    const auto marks = axis_marks(low, high);
    CAPTURE(low, high, marks);
    CHECK(marks.size() >= 1);
    CHECK(marks.size() <= 7);
    for (size_t i = 1; i < marks.size(); ++i) CHECK(marks[i - 1] < marks[i]);
  }
}

TEST_CASE("a position is never outside of its range", "[curve]") {
  using Real = std::numeric_limits<double>;
  CHECK(position_in(3, 2, 6) == 0.25);
  CHECK(position_in(3, 3, 3) == 0.5);
  CHECK(position_in(0, -1e308, 1e308) == 0.5);
  const std::vector<double> values = {-Real::infinity(),  -1e308, -1,    0,
                                      Real::denorm_min(), 1,      1e308, Real::infinity(),
                                      Real::quiet_NaN()};
  for (const double value : values) {
    for (const double low : values) {
      for (const double high : values) {
        CAPTURE(value, low, high);
        const double position = position_in(value, low, high);
        CHECK(position >= 0);
        CHECK(position <= 1);
      }
    }
  }
}

}  // namespace shale::models
