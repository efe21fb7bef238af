#include "shale/models/views/watch_screen.h"

#include "shale/test/support/catch.h"

namespace shale::models {

using test::contains;

namespace {

// Letters that a line takes in a terminal: its colours and the later bytes of letters take none.
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
  run.warnings = {{.time = "T", .rank = 3, .level = "warning", .text = "slow\x1b[2J"}};
  return run;
}

}  // namespace

TEST_CASE("dots are where the values are", "[watch_screen]") {
  CHECK(braille_plot({}, 2, 1) == std::vector<std::string>{"  "});
  // From the dot at the lower left to the one at the upper right.
  CHECK(braille_plot({{1, 0}, {2, 1}}, 1, 1) ==
        std::vector<std::string>{"\xe2\xa1\x88"});  // U+2848
  const auto plot = braille_plot({{1, 5}, {9, 1}}, 2, 2);
  CHECK(plot == std::vector<std::string>{"\xe2\xa0\x81\xe2\xa0\x80", "\xe2\xa0\x80\xe2\xa2\x80"});
}

TEST_CASE("a screen fits its terminal, whatever that is", "[watch_screen]") {
  const RunData run = falling_run();
  for (const int columns : {1, 13, 40, 80, 200}) {
    for (const int rows : {1, 6, 24, 60}) {
      for (const bool has_color : {false, true}) {
        CAPTURE(columns, rows, has_color);
        const auto lines = watch_screen(run, {columns, rows, has_color});
        CHECK(lines.size() <= static_cast<size_t>(rows));
        for (const std::string& line : lines) CHECK(width_of(line) <= columns);
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
  CHECK(contains(text, "warning of rank 3: slow\\x1b[2J"));
  CHECK_FALSE(contains(text, "\x1b"));
  CHECK(contains(watch_screen(falling_run(), {100, 40, true}).front(), "\x1b[31m"));
  CHECK(contains(watch_screen({.name = "new"}, {}).at(1), "no step yet"));
}

}  // namespace shale::models
