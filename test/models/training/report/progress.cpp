#include "shale/models/training/report/progress.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

// A logger that writes to a file, not to a terminal, with a clock that only the test advances.
struct Run {
  std::unique_ptr<FILE, int (*)(FILE*)> file{std::tmpfile(), std::fclose};
  Logger log{{.out = file.get(), .err = file.get()}};
  double now = 100;
  Progress progress{log, [this] { return now; }};

  void steps(int64_t first, int64_t last, int64_t total, double seconds_each) {
    for (int64_t step = first; step <= last; ++step) {
      now += seconds_each;
      progress.update({.step = step, .total_steps = total, .loss = 1});
    }
  }
  std::string text() const {
    std::string text(static_cast<size_t>(std::ftell(file.get())), '\0');
    std::rewind(file.get());
    const size_t count = std::fread(text.data(), 1, text.size(), file.get());
    REQUIRE(count == text.size());
    return text;
  }
  int64_t lines() const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), '\n');
  }
};

}  // namespace

TEST_CASE("a progress line has what is known and leaves out the rest", "[progress]") {
  ProgressState state = {.step = 120,
                         .total_steps = 1000,
                         .epoch = 0.4838,
                         .loss = 3.41234f,
                         .lr = 2.9e-4,
                         .grad_norm = 0.5234,
                         .items_per_s = 45210,
                         .mfu = 0.413,
                         .memory_bytes = 1288490189};
  CHECK(format_progress(state, 192) ==
        "step  120/1000  12% | epoch 0.48 | loss 3.4123 | lr 2.9e-4 | norm 0.52 | 45.2k tok/s | "
        "mfu 41.3% | mem 1.2 GiB | 3m 12s left");
  state = {.step = 5, .total_steps = 5, .loss = 0.5f};
  CHECK(format_progress(state, std::nullopt) == "step 5/5 100% | loss 0.5000");
  state = {.step = 3, .total_steps = 0, .loss = std::numeric_limits<float>::quiet_NaN()};
  CHECK(format_progress(state, std::nullopt) == "step 3 | loss nan");
}

TEST_CASE("a narrow progress line keeps epoch, loss, rate, norm and the time left", "[progress]") {
  const ProgressState state = {.step = 120,
                               .total_steps = 100000,
                               .epoch = 12.48,
                               .loss = 3.41234f,
                               .lr = 2.9e-4,
                               .grad_norm = 0.5234,
                               .items_per_s = 45210,
                               .mfu = 0.413,
                               .memory_bytes = 1288490189};
  const auto line = [&](size_t columns) { return format_progress(state, 19920, columns); };
  CHECK(line(79) == "step 120/100000  epoch 12.5  loss 3.4123  lr 2.9e-4  norm 0.52  5h 32m left");
  CHECK(line(84) ==
        "step    120/100000 | epoch 12.5 | loss 3.4123 | lr 2.9e-4 | norm 0.52 | 5h 32m left");
  CHECK(test::contains(line(97), "norm 0.52 | 45.2k tok/s | 5h 32m left"));
  CHECK(test::contains(line(102), "step    120/100000   0% | epoch"));
  CHECK(test::contains(line(114), "| mfu 41.3% | 5h 32m left"));
  CHECK(test::contains(line(200), "| mfu 41.3% | mem 1.2 GiB | 5h 32m left"));
}

TEST_CASE("rates and norms are short at any size", "[progress]") {
  const auto line = [](double lr, double norm) {
    return format_progress({.lr = lr, .grad_norm = norm}, std::nullopt);
  };
  CHECK(line(0, 0) == "step 0 | loss 0.0000 | lr 0.0e+0 | norm 0.00");
  CHECK(line(1e-10, 9.996) == "step 0 | loss 0.0000 | lr 1.0e-10 | norm 10.0");
  CHECK(line(0.5, 140.2) == "step 0 | loss 0.0000 | lr 5.0e-1 | norm 140");
  CHECK(line(3e30, 1380) == "step 0 | loss 0.0000 | lr 3.0e+30 | norm 1.4e+03");
}

TEST_CASE("a validation's line says over what, and how long it took", "[progress]") {
  EvalMetrics metrics{.step = 120, .val_loss = 3.41234f, .items = 65536, .ms = 2100};
  CHECK(format_evaluation(metrics, 1000) ==
        "step  120/1000  12% | validation loss 3.4123 | 65.5k tokens in 2s");
  metrics = {.step = 3, .val_loss = 1};
  CHECK(format_evaluation(metrics, 0) == "step 3 | validation loss 1.0000");
}

TEST_CASE("100% means done", "[progress]") {
  const ProgressState state = {.step = 9999, .total_steps = 10000};
  CHECK(format_progress(state, std::nullopt) == "step  9999/10000  99% | loss 0.0000");
}

TEST_CASE("speeds keep three digits", "[progress]") {
  const auto [speed, text] = GENERATE(table<double, std::string>({{0, "0 tok/s"},
                                                                  {7.4, "7 tok/s"},
                                                                  {999.4, "999 tok/s"},
                                                                  {999.6, "1.00k tok/s"},
                                                                  {1234, "1.23k tok/s"},
                                                                  {12345, "12.3k tok/s"},
                                                                  {99960, "100k tok/s"},
                                                                  {999600, "1.00M tok/s"},
                                                                  {1.31e6, "1.31M tok/s"},
                                                                  {5e12, "5000G tok/s"}}));
  const ProgressState state = {.items_per_s = speed};
  CHECK(format_progress(state, std::nullopt) == "step 0 | loss 0.0000 | " + text);
}

TEST_CASE("durations show two units", "[progress]") {
  const auto [seconds, text] = GENERATE(table<double, std::string>({{0, "0s"},
                                                                    {-3, "0s"},
                                                                    {0.4, "0s"},
                                                                    {42, "42s"},
                                                                    {59.6, "1m 00s"},
                                                                    {192, "3m 12s"},
                                                                    {3599, "59m 59s"},
                                                                    {3600, "1h 00m"},
                                                                    {18120, "5h 02m"},
                                                                    {86400, "1d 00h"},
                                                                    {198000, "2d 07h"},
                                                                    {1e300, "11574d 01h"}}));
  CHECK(format_duration(seconds) == text);
}

TEST_CASE("a quick run prints the first step, about every 2%, and the last", "[progress]") {
  Run run;
  run.steps(1, 1000, 1000, 0.001);
  run.progress.finish();
  const std::string text = run.text();
  CHECK(text.starts_with("step    1/1000   0% | loss 1.0000\nstep   21/1000   2% | "));
  CHECK(text.find("\nstep 1000/1000 100% | loss 1.0000\n") != std::string::npos);
  CHECK(run.lines() == 51);
}

TEST_CASE("a slow run prints every 10 seconds", "[progress]") {
  Run run;
  run.steps(1, 101, 1000000, 1);
  CHECK(run.lines() == 11);
}

TEST_CASE("a short run prints every step once", "[progress]") {
  Run run;
  run.steps(1, 3, 3, 0.001);
  run.progress.finish();
  run.progress.finish();
  CHECK(run.lines() == 3);
}

TEST_CASE("a run that stops early leaves its last step", "[progress]") {
  Run run;
  run.steps(1, 10, 1000, 0.001);
  run.progress.finish();
  CHECK(run.text().find("\nstep   10/1000   1% | loss 1.0000 | 1s left\n") != std::string::npos);
  CHECK(run.lines() == 2);
}

TEST_CASE("the time left comes from this run's steps without its first", "[progress]") {
  Run run;
  run.steps(501, 501, 1000, 60);  // the first step after resuming is slow
  run.steps(502, 521, 1000, 2);
  // 479 steps remain, and each takes 2 seconds.
  CHECK(run.text().find("step  521/1000  52% | loss 1.0000 | 15m 58s left\n") != std::string::npos);
}

TEST_CASE("finish without a step prints nothing", "[progress]") {
  Run run;
  run.progress.finish();
  CHECK(run.text().empty());
}

}  // namespace shale
