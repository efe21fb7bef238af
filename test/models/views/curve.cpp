#include "shale/models/views/curve.h"

#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"

namespace shale::models {

namespace {

// Returns a column with value(step) at each of the steps 1 to `steps`.
template <typename Value>
Column column_of(int64_t steps, Value value) {
  Column column;
  for (int64_t step = 1; step <= steps; ++step) column.add(step, value(step));
  return column;
}

}  // namespace

TEST_CASE("a curve has the steps whose value is known and finite", "[curve]") {
  Column column;
  column.add(1, 0.5);
  column.add(2, std::numeric_limits<double>::infinity());
  column.add(4, 1e308);
  column.add(5, 1e200);
  CHECK(column.newest() == 1e200);
  column.add(6, std::nullopt);
  CHECK(curve_of(column) == CurvePoints{{1, 0.5}, {5, 1e200}});
  CHECK_FALSE(column.newest());
  CHECK(column.newest_step() == 6);
  CHECK(column.newest_known() == 1e200);
  CHECK(Column().points().empty());
}

TEST_CASE("steps that a resumed run makes again replace the earlier ones", "[curve]") {
  Column column = column_of(9, [](int64_t step) { return static_cast<double>(step); });
  column.add(4, 40.0);
  column.add(5, 50.0);
  CHECK(curve_of(column) == CurvePoints{{1, 1}, {2, 2}, {3, 3}, {4, 40}, {5, 50}});
  column.add(5, 51.0);
  CHECK(curve_of(column).back() == CurvePoint{5, 51});
}

TEST_CASE("a column of any length keeps every peak and the mean in bounded memory", "[curve]") {
  constexpr int64_t kSteps = 100'000;
  Column column = column_of(kSteps, [](int64_t step) {
    return step == 54'321 ? 7.0 : step == 54'322 ? -7.0 : std::sin(0.1 * static_cast<double>(step));
  });
  const auto& points = column.points();
  CHECK(points.size() <= Column::kMostPoints);
  CHECK(points.size() >= Column::kMostPoints / 4);
  double least = 0, most = 0;
  int64_t count = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    least = std::min(least, points[i].least), most = std::max(most, points[i].most);
    count += points[i].count;
    CHECK(points[i].first <= points[i].last);
    if (i > 0) CHECK(points[i - 1].last < points[i].first);
  }
  CHECK(least == -7);
  CHECK(most == 7);
  CHECK(count == kSteps);
  CHECK(points.back().last == kSteps);
  CHECK(std::abs(points.front().mean()) < 0.5);
  // Covers steps that are far apart, up to the largest number.
  for (int64_t step = kSteps; step < std::numeric_limits<int64_t>::max() / 2; step *= 2) {
    for (int64_t i = 0; i < 100; ++i) column.add(step + i, 1.0);
  }
  column.add(std::numeric_limits<int64_t>::max(), 1.0);
  CHECK(column.points().size() <= Column::kMostPoints);
  column.drop_from(10);
  CHECK(column.points().size() <= 1);
}

TEST_CASE("smoothing looks to both sides and keeps a line", "[curve]") {
  CurvePoints line;
  for (int64_t step = 0; step < 1001; ++step) line.push_back({step, static_cast<double>(step)});
  CHECK(smoothed(line)[500].value == Approx(500));  // the smoothed curve does not lag behind
  line[500].value = 1500;
  CHECK(smoothed(line)[500].value < 600);
  CHECK(smoothed(line)[499].value > 500);
  CHECK(smoothed(line)[501].value > 502);
  const CurvePoints few = {{1, 4}, {2, 4}, {5, 1}};
  CHECK(smoothed(few) == few);
  CHECK(smoothed({}).empty());
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
