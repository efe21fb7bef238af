#include "shale/models/training/report/run_report.h"

#include <cstdio>
#include <ctime>
#include <memory>

#include "shale/models/training/report/progress.h"
#include "shale/models/training/report/run_status.h"
#include "shale/models/training/report/starts_file.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

using test::TempDir;

namespace {

StepMetrics row(int64_t step) {
  return {.step = step,
          .loss = 3.25f + 1e-3f * static_cast<float>(step % 100),
          .grad_norm = 1.5,
          .lr = 3e-4,
          .items = 8192 * step,
          .items_per_s = 10000.5,
          .step_ms = 812.25,
          .comm_exposed_ms = 12.5,
          .mfu = 0.41,
          .device_peak_bytes = int64_t{6} << 30,
          .host_peak_bytes = int64_t{1} << 30,
          .loss_scale = 65536,
          .skipped_steps = 1};
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TEST_CASE("a row of all reports together takes less than 0.2 ms of the processor", "[run_report]") {
  const TempDir dir;
  RunReport report({.out = dir.path(), .tensorboard = true, .prometheus = "0"});
  for (int64_t step = 1; step <= 100; ++step) report.write(row(step));
  constexpr int64_t kRows = 2000;
  const double before = thread_seconds();
  for (int64_t step = 101; step <= 100 + kRows; ++step) report.write(row(step));
  const double ms = 1e3 * (thread_seconds() - before) / static_cast<double>(kRows);
  std::printf("a row of metrics.jsonl, TensorBoard and Prometheus: %.4f ms\n", ms);
  // A step of 124M parameters takes at least 100 ms, and 0.5% of that is 0.5 ms.
  CHECK(ms < 0.2);
}

TEST_CASE("a line of the log costs less than 0.2 ms of the processor", "[run_report]") {
  const TempDir dir;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), std::fclose);
  Logger log{{.out = file.get(), .err = file.get()}};
  double now = 0;
  Progress progress(log, [&now] { return now; });
  constexpr int64_t kSteps = 300;
  double before = thread_seconds();
  for (int64_t step = 1; step <= kSteps; ++step) {
    now += 60;  // makes every step print a line
    progress.update({.step = step, .total_steps = kSteps, .loss = 3.25f, .items_per_s = 10000});
  }
  const double line_ms = 1e3 * (thread_seconds() - before) / static_cast<double>(kSteps);
  before = thread_seconds();
  for (int64_t step = 1; step <= kSteps; ++step) {
    write_run_status(dir.path(), {.step = step, .checkpoint_step = step, .checkpoint = "x"});
  }
  const double status_ms = 1e3 * (thread_seconds() - before) / static_cast<double>(kSteps);
  std::printf("a line of the log: %.4f ms; status.json, written with a checkpoint: %.4f ms\n",
              line_ms, status_ms);
  CHECK(line_ms < 0.2);
  CHECK(status_ms < 5);  // written once per checkpoint, not per step
}

TEST_CASE("what was known before a restart is known to Prometheus after it", "[run_report]") {
  const TempDir dir;
  const std::string prom = dir.file("shale.prom");
  {
    RunReport report({.out = dir.path(), .prometheus = prom});
    report.write(row(7));
    report.write(EvalMetrics{.step = 7, .val_loss = 2.5f});
    report.write(row(8));
    report.end(8);
  }
  RunReport report({.out = dir.path(), .goes_on = true, .first_step = 7, .prometheus = prom});
  report.end(7);
  const std::string text = test::read_file(prom);
  CHECK(test::contains(text, "shale_step{run=\"" + dir.path().string() + "\"} 7\n"));
  CHECK(test::contains(text, "shale_validation_loss"));
}

TEST_CASE("a sample of a run that goes on where it ended is told once", "[run_report]") {
  const TempDir dir;
  const RunReport::Options options{
      .out = dir.path(), .goes_on = true, .first_step = 4, .tensorboard = true};
  {
    RunReport report({.out = dir.path(), .tensorboard = true});
    report.write(row(4));
    report.write_text(4, "samples/end", "the same");
  }
  RunReport(options).write_text(4, "samples/end", "the same");
  CHECK(read_samples(dir.path() / "samples.jsonl").size() == 1);
  int files = 0, texts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path() / "tensorboard")) {
    ++files;
    texts += test::contains(test::read_file(entry.path()), "samples/end") ? 1 : 0;
  }
  CHECK(files == 2);
  CHECK(texts == 1);
}

TEST_CASE("damaged reports are kept aside, and keep no run from going on", "[run_report]") {
  const TempDir dir;
  {
    RunReport report({.out = dir.path()});
    report.write(row(4));
    report.write_text(4, "samples/end", "a text");
  }
  for (const char* name : {"metrics", "samples", "starts"}) {
    dir.write(cat(name, ".jsonl"), "{\"step\": \n");
  }
  {
    RunReport report({.out = dir.path(), .goes_on = true, .first_step = 4});
    report.write(row(5));
    report.end(5);
  }
  CHECK(read_metrics(dir.file("metrics.jsonl")).size() == 1);
  CHECK(read_starts(dir.file("starts.jsonl")).size() == 1);
  CHECK(read_samples(dir.file("samples.jsonl")).empty());
  for (const char* name : {"metrics", "samples", "starts"}) {
    CHECK(test::read_file(dir.file(cat(name, ".1.jsonl"))) == "{\"step\": \n");
  }
}

}  // namespace shale::models
