#include "shale/models/views/watch_screen.h"

#include <limits>

#include "shale/test/support/catch.h"

namespace shale::models {

using test::contains;

namespace {

// Returns the number of terminal columns of a line: colour codes and UTF-8 continuation bytes take
// none.
int width_of(std::string_view line) {
  int width = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b')
      i = line.find('m', i);
    else if ((line[i] & 0xc0) != 0x80)
      ++width;
  }
  return width;
}

RunData falling_run() {
  RunData run{.name = "out"};
  for (int64_t step = 1; step <= 300; ++step) {
    run.steps.push_back({.step = step,
                         .loss = 3 + 5 / static_cast<float>(step),
                         .grad_norm = 1.0 / static_cast<double>(step),
                         .items_per_s = 1000});
  }
  run.status = RunStatus{.state = RunState::kFailed, .step = 300, .message = "rank 3 has gone"};
  run.warnings = {{.time = "T", .rank = 3, .level = "warning\x1b[2J", .text = "slow\x1b[2J"}};
  return run;
}

}  // namespace

TEST_CASE("dots are where the values are", "[watch_screen]") {
  CHECK(braille_plot({}, 2, 1) == std::vector<std::string>{"  "});
  // The curve goes from the dot at the lower left to the one at the upper right.
  CHECK(braille_plot({{1, 0}, {2, 1}}, 1, 1) ==
        std::vector<std::string>{"\xe2\xa1\x88"});  // U+2848
  const auto plot = braille_plot({{1, 5}, {9, 1}}, 2, 2);
  CHECK(plot == std::vector<std::string>{"\xe2\xa0\x81\xe2\xa0\x80", "\xe2\xa0\x80\xe2\xa2\x80"});
}

TEST_CASE("every point lies in its plot, whatever its step and value", "[watch_screen]") {
  using Int = std::numeric_limits<int64_t>;
  using Real = std::numeric_limits<double>;
  const std::vector<std::pair<const char*, CurvePoints>> cases = {
      {"one point", {{7, 1}}},
      {"all points equal", {{7, 1}, {7, 1}, {7, 1}}},
      {"steps do not ascend", {{1000000, 1}, {1, 2}, {1000001, 3}}},
      {"steps twice", {{1, 4}, {2, 3}, {3, 2}, {1, 4}, {2, 3}}},
      {"negative steps", {{-5, 1}, {-1000, 2}, {3, 0}}},
      {"least and largest steps", {{Int::max(), 1}, {Int::min(), 2}, {0, 3}, {-1, 4}}},
      {"steps that are one double", {{Int::max() - 1, 1}, {Int::max(), 2}}},
      {"values whose difference overflows", {{1, 1e308}, {2, -1e308}, {3, 0}}},
      {"values that are not finite", {{1, Real::quiet_NaN()}, {2, Real::infinity()}, {3, 1}}},
      {"NaN behind a number", {{1, 1}, {2, Real::quiet_NaN()}, {3, -Real::infinity()}}},
      {"the least denormal", {{1, 0}, {2, Real::denorm_min()}}},
  };
  for (const auto& [name, points] : cases) {
    for (const int columns : {-1, 0, 1, 2, 80}) {
      for (const int rows : {-1, 0, 1, 12}) {
        CAPTURE(name, columns, rows);
        const auto plot = braille_plot(points, columns, rows);
        CHECK(plot.size() == static_cast<size_t>(std::max(rows, 0)));
        for (const std::string& line : plot) CHECK(width_of(line) == std::max(columns, 0));
      }
    }
  }
}

TEST_CASE("a plot does not depend on the order of its points", "[watch_screen]") {
  CHECK(braille_plot({{9, 3}, {1, 1}, {5, 2}}, 7, 3) ==
        braille_plot({{1, 1}, {5, 2}, {9, 3}}, 7, 3));
}

TEST_CASE("a screen fits its terminal, whatever that is", "[watch_screen]") {
  const RunData run = falling_run();
  using Int = std::numeric_limits<int>;
  for (const int columns : {Int::min(), 0, 1, 13, 40, 80, 200, Int::max()}) {
    for (const int rows : {Int::min(), 0, 1, 6, 24, 60, Int::max()}) {
      for (const bool has_color : {false, true}) {
        CAPTURE(columns, rows, has_color);
        const auto lines = watch_screen(run, {columns, rows, has_color});
        CHECK(lines.size() <= static_cast<size_t>(std::max(rows, 0)));
        for (const std::string& line : lines) CHECK(width_of(line) <= std::max(columns, 0));
      }
    }
  }
}

TEST_CASE("a screen says what the run is doing, and nothing drives the terminal",
          "[watch_screen]") {
  std::string text;
  for (const std::string& line : watch_screen(falling_run(), {100, 40})) text += line + "\n";
  CHECK(contains(text, "out: failed, rank 3 has gone"));
  CHECK(contains(text, "step 300  loss 3.01667"));
  CHECK(contains(text, "Loss, steps 1 to 300"));
  CHECK(contains(text, "warning\\x1b[2J of rank 3: slow\\x1b[2J"));
  CHECK_FALSE(contains(text, "\x1b"));
  CHECK(contains(watch_screen(falling_run(), {100, 40, true}).front(), "\x1b[31m"));
  CHECK(contains(watch_screen({.name = "new"}, {}).at(1), "no step yet"));
}

}  // namespace shale::models
