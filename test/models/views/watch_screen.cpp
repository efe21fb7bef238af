#include "shale/models/views/watch_screen.h"

#include <limits>

#include "shale/base/parse.h"
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
    const auto at = static_cast<double>(step);
    run.columns["loss"].add(step, 3 + 5 / at);
    run.columns["grad_norm"].add(step, 1 / at);
    run.columns["tokens_per_s"].add(step, 1000);
    if (step % 100 == 0) run.columns["val_loss"].add(step, 3.5);
  }
  run.state = "failed";
  run.status = {{"checkpoint_step", 200}, {"message", "rank 3 has gone"}};
  run.options = {{"steps", 1200}};
  run.warnings.newest = {Json{{"rank", 3}, {"level", "warning\x1b[2J"}, {"text", "slow\x1b[2J"}},
                         Json(7)};
  return run;
}

std::string text_of(const RunData& run, const Terminal& terminal = {100, 40}) {
  std::string text;
  for (const std::string& line : watch_screen(run, terminal)) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("lines of dots join the values", "[watch_screen]") {
  CHECK(braille_plot({}, 2, 1) == std::vector<std::string>{"  "});
  CHECK(braille_plot({{1, 5}}, 1, 1) == std::vector<std::string>{"\xe2\xa0\x84"});  // U+2804
  // The curve goes from the dot at the lower left to the one at the upper right.
  CHECK(braille_plot({{1, 0}, {2, 1}}, 1, 1) ==
        std::vector<std::string>{"\xe2\xa1\x9c"});  // U+285C
  const auto plot = braille_plot({{1, 5}, {9, 1}}, 2, 2);
  CHECK(plot == std::vector<std::string>{"\xe2\xa2\xa3\xe2\xa0\x80", "\xe2\xa0\x80\xe2\xa2\xa3"});
  // A mark is drawn as a letter in place of dots, inside the plot.
  CHECK(braille_plot({{1, 5}, {9, 1}}, 2, 2, {{9, 1}}) ==
        std::vector<std::string>{"\xe2\xa2\xa3\xe2\xa0\x80", "\xe2\xa0\x80o"});
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
  RunData run = falling_run();
  const std::string text = text_of(run);
  CHECK(contains(text, "out: failed, checkpoint at 200, rank 3 has gone"));
  CHECK(contains(text, "step 300 of 1200, 25%  loss 3.01667  validation 3.5  1000 tokens/s"));
  CHECK(contains(text, "Loss, o: validation, steps 1 to 300"));
  CHECK(contains(text, "warning\\x1b[2J of rank 3: slow\\x1b[2J"));
  CHECK_FALSE(contains(text, "\x1b"));
  CHECK(contains(watch_screen(run, {100, 40, true}).front(), "\x1b[31m"));
  CHECK(contains(text_of({.name = "new"}), "no step yet"));

  run.state = "killed";
  CHECK(contains(text_of(run), "out: killed, no process writes to the folder"));
  CHECK(contains(watch_screen(run, {100, 40, true}).front(), "\x1b[31m"));
  run.state = "running";
  run.columns["step_ms"].add(300, 2000);
  CHECK(contains(text_of(run), "30m 00s left"));
  CHECK_FALSE(contains(text_of(run), "silent"));
  run.silent_s = 400;
  CHECK(contains(text_of(run), "running, silent for 6m 40s"));
  run.columns["loss"].add(301, std::nullopt);
  CHECK(contains(text_of(run), "loss nan"));
}

TEST_CASE("curves have axes with round numbers, and the validations", "[watch_screen]") {
  const std::string text = text_of(falling_run());
  for (const char* const label : {"        5┤", "100", "200", "300", "└───", "┬"}) {
    CAPTURE(label);
    CHECK(contains(text, label));
  }
  size_t marks = 0;  // a mark follows a braille character, unlike the letters of words
  for (size_t at = text.find('o'); at != text.npos; at = text.find('o', at + 1)) {
    if (at > 0 && (text[at - 1] & 0x80) != 0) ++marks;
  }
  CHECK(marks == 3);
  RunData one{.name = "one"};
  one.columns["loss"].add(1, 5.0);
  CHECK(contains(text_of(one), "Loss, steps 1 to 1"));
}

TEST_CASE("figures that do not fit a line go on in the next", "[watch_screen]") {
  const auto lines = watch_screen(falling_run(), {30, 40});
  CHECK(lines[1] == "step 300 of 1200, 25%");
  CHECK(lines[2] == "loss 3.01667  validation 3.5");
  CHECK(lines[3] == "1000 tokens/s");
}

TEST_CASE("a name in another script is cut between its characters", "[watch_screen]") {
  RunData run = falling_run();
  run.name = "学習の実行その一学習の実行その一";
  for (int columns = 0; columns < 40; ++columns) {
    const std::string line = watch_screen(run, {columns, 40}).front();
    CAPTURE(columns, line);
    CHECK(width_of(line) <= columns);
    for (std::string_view rest = line; !rest.empty();) {
      const Utf8Start start = utf8_start(rest);
      CHECK_FALSE(start.is_broken);
      rest.remove_prefix(start.bytes);
    }
  }
}

TEST_CASE("the ranks of several are listed, those of one are not", "[watch_screen]") {
  RunData run = falling_run();
  run.columns["ranks"].add(300, 1);
  for (const auto& [key, value] : {std::pair{"device_busy_share_min", 0.5},
                                   {"device_busy_share_min_rank", 3},
                                   {"device_busy_share_median", 0.75},
                                   {"device_busy_share_max", 0.9},
                                   {"device_busy_share_max_rank", 1}}) {
    run.columns[key].add(300, value);
  }
  CHECK_FALSE(contains(text_of(run), "device_busy_share"));
  run.columns["ranks"].add(300, 8);
  CHECK(contains(text_of(run), "8 ranks at step 300"));
  CHECK(contains(text_of(run), "device_busy_share  50% (3)  75%  90% (1)"));
}

}  // namespace shale::models
