#include "shale/models/views/run_data.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/models/training/output_lock.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/report/run_status.h"
#include "shale/models/training/report/starts_file.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

RunData read_run(const std::string& run) {
  return RunReader(run).read();
}

// Returns the steps and values of a key as text: "1:4 2:3".
std::string points_of(const RunData& run, std::string_view key) {
  std::string text;
  for (const CurvePoint& point : curve_of(*run.column(key))) {
    text += cat(text.empty() ? "" : " ", point.step, ":", point.value);
  }
  return text;
}

}  // namespace

TEST_CASE("a run is what its folder has, and metrics are enough", "[run_data]") {
  const TempDir dir;
  CHECK(contains(message_of<MissingInputError>([&] { read_run(dir.path()); }), "metrics.jsonl"));
  const std::string rows = to_json_line(StepMetrics{.step = 1, .loss = 3, .items_per_s = 9}) +
                           to_json_line(EvalMetrics{.step = 1, .val_loss = 2}) +
                           to_json_line(RanksMetrics{.step = 1, .ranks = 2}) + "{\"step\": 2, \"lo";
  const std::string metrics = dir.write("metrics.jsonl", rows);
  const RunData bare = read_run(dir.path());
  CHECK(bare.newest("loss") == 3);
  CHECK(bare.newest("val_loss") == 2);
  CHECK(bare.newest("ranks") == 2);
  CHECK_FALSE(bare.newest("mfu"));
  CHECK(bare.column("nothing") == nullptr);
  CHECK(bare.item() == "tokens");
  CHECK(bare.loss_bits == std::vector<std::pair<int64_t, uint32_t>>{{1, 0x40400000}});
  CHECK(bare.state == "unknown");
  CHECK(bare.options.is_null());
  CHECK(points_of(read_run(metrics), "loss") == "1:3");

  write_run_status(dir.path(), {.state = RunState::kDone, .step = 1});
  dir.write("config.json", "{\"steps\": 5, \"optimizer\": \"adamw\", \"export\": null}");
  std::string warnings;
  for (int i = 0; i < 203; ++i) {
    warnings += cat("{\"time\": \"T\", \"host\": \"h\", \"rank\": ", i,
                    ", \"level\": \"warning\", \"text\": \"slow\"}\n");
  }
  dir.write("warnings.jsonl", warnings);
  add_start(dir.path() / "starts.jsonl", {.step = 0, .ranks = 2, .time = "T"});
  for (const char* name : {"step_00000100", "step_00000020", "step_00000030.tmp-1", "latest"}) {
    std::filesystem::create_directories(dir.path() / "checkpoints" / name);
  }
  std::filesystem::create_directories(dir.path() / "samples");
  for (const int step : {9, 2, 4, 6, 8}) dir.write(cat("samples/step_0000000", step, ".png"), "x");
  const RunData run = read_run(dir.path());
  CHECK(run.starts.newest.size() == 1);
  CHECK(run.starts.newest[0]["ranks"] == Json(2));
  CHECK(run.checkpoints == std::vector<int64_t>{20, 100});
  CHECK(run.pictures.size() == 4);
  CHECK(run.pictures.front().ends_with("step_00000004.png"));
  CHECK(run.pictures.back().ends_with("step_00000009.png"));
  CHECK(run.state == "done");
  CHECK(run.steps_wanted() == 5);
  CHECK(run.options == Json({{"steps", 5}, {"optimizer", "adamw"}, {"export", nullptr}}));
  CHECK(run.warnings.newest.size() == 200);
  CHECK(run.warnings.left_out == 3);
  CHECK(run.warnings.newest.back()["rank"] == Json(202));
}

TEST_CASE("a run that writes and a killed run are told apart", "[run_data]") {
  const TempDir dir;
  dir.write("config.json", "{\"steps\": 20}");
  std::string rows;
  for (int64_t step = 1; step <= 10; ++step) {
    rows += to_json_line(StepMetrics{.step = step, .loss = 3, .step_ms = 500});
  }
  dir.write("metrics.jsonl", rows);
  write_run_status(dir.path(), {.state = RunState::kRunning});
  {
    const OutputLock lock(dir.path());
    const RunData run = read_run(dir.path());
    CHECK(run.state == "running");
    CHECK(run.seconds_left() == Approx(10 * 0.5));
    CHECK(run.silent_s < 60);
  }
  CHECK(read_run(dir.path()).state == "killed");
  CHECK_FALSE(read_run(dir.path()).seconds_left());
  dir.write("lock", "{\"host\": \"another\", \"pid\": 1, \"started\": 5}");
  // "killed" if the file system is known to be local, as then no other host can hold the lock.
  const RunData far = read_run(dir.path());
  CHECK((far.state == "unknown" || far.state == "killed"));
}

TEST_CASE("a reader reads what is new, and everything of a file that was replaced", "[run_data]") {
  const TempDir dir;
  const auto row = [](int64_t step, float loss) {
    return to_json_line(StepMetrics{.step = step, .loss = loss});
  };
  dir.write("metrics.jsonl", row(1, 9) + row(2, 8) + "{\"st");
  RunReader reader(dir.path());
  CHECK(points_of(reader.read(), "loss") == "1:9 2:8");
  dir.write("metrics.jsonl", row(1, 9) + row(2, 8) + row(3, 7));
  CHECK(points_of(reader.read(), "loss") == "1:9 2:8 3:7");
  CHECK(points_of(reader.read(), "loss") == "1:9 2:8 3:7");
  // The run was resumed from step 1.
  dir.write("metrics.jsonl", row(1, 9) + row(2, 5) + row(3, 4) + row(4, 3));
  CHECK(points_of(reader.read(), "loss") == "1:9 2:5 3:4 4:3");
  dir.write("metrics.jsonl", row(1, 6));
  CHECK(points_of(reader.read(), "loss") == "1:6");
  CHECK(reader.read().loss_bits.size() == 1);
}

TEST_CASE("a step that was made again replaces the later rows of every kind", "[run_data]") {
  const TempDir dir;
  dir.write("metrics.jsonl", to_json_line(StepMetrics{.step = 1, .loss = 6}) +
                                 to_json_line(StepMetrics{.step = 2, .loss = 5}) +
                                 to_json_line(EvalMetrics{.step = 2, .val_loss = 4}) +
                                 to_json_line(StepMetrics{.step = 3, .loss = 3}) +
                                 to_json_line(StepMetrics{.step = 2, .loss = 2}));
  const RunData run = read_run(dir.path());
  CHECK(points_of(run, "loss") == "1:6 2:2");
  CHECK(run.column("val_loss")->points().empty());
  CHECK(run.loss_bits.size() == 2);
}

TEST_CASE("a loss that is not finite is unknown, and its bits are kept", "[run_data]") {
  const TempDir dir;
  dir.write("metrics.jsonl", to_json_line(StepMetrics{.step = 1, .loss = 6}) +
                                 to_json_line(StepMetrics{.step = 2, .loss = NAN}));
  const RunData run = read_run(dir.path());
  CHECK(points_of(run, "loss") == "1:6");
  CHECK(run.column("loss")->newest_step() == 2);
  CHECK_FALSE(run.column("loss")->newest());
  CHECK(run.newest("loss") == 6);
  CHECK(run.loss_bits.size() == 2);
}

TEST_CASE("what is malformed is named with its line", "[run_data]") {
  const TempDir dir;
  dir.write("metrics.jsonl", "");
  dir.write("config.json", "[]");
  CHECK(contains(message_of<DataError>([&] { read_run(dir.path()); }), "config.json"));
  const std::string good = "{\"step\": 1, \"loss\": 2}\n";
  for (const char* const bad : {"{\"loss\": 1}", "{\"step\": -1}", "{\"step\": 1.5}", "[1]", "1",
                                "{\"step\": 1, \"a\": [1]}", "{\"step\": 1, \"a\": {}}", "{"}) {
    CAPTURE(bad);
    dir.write("metrics.jsonl", good + bad + "\n");
    CHECK(contains(message_of<DataError>([&] { read_run(dir.path()); }), "metrics.jsonl:2"));
  }
}

TEST_CASE("a warning that was cut off leaves the others readable", "[run_data]") {
  const TempDir dir;
  dir.write("metrics.jsonl", "");
  const std::string line =
      "{\"time\": \"T\", \"host\": \"h\", \"rank\": 1, \"level\": \"warning\", \"text\": \"x\"}\n";
  dir.write("warnings.jsonl", line + "{\"time\": \"T\", \"ho" + line + line + "null\n");
  const RunData run = read_run(dir.path());
  CHECK(run.warnings.newest.size() == 2);
  CHECK(run.warnings.unreadable == 2);
}

TEST_CASE("CSV has a column for each key, and quotes what needs it", "[run_data]") {
  CHECK(csv_of_metrics("{\"step\": 1, \"loss\": 2.5, \"lr\": null}\n"
                       "{\"step\": 1, \"val_loss\": 2, \"a,\\\"b\\\"\": \"x\\ny\"}\n{\"step",
                       "m") ==
        "step,loss,lr,val_loss,\"a,\"\"b\"\"\"\r\n1,2.5,,,\r\n1,,,2,\"x\ny\"\r\n");
  CHECK(csv_of_metrics("", "m") == "\r\n");
  CHECK(contains(message_of<DataError>([] { csv_of_metrics("{}\n[1]\n", "m"); }), "m:2"));
}

TEST_CASE("CSV of rows with ever new keys is an error, not a table of all memory", "[run_data]") {
  std::string rows;
  for (int i = 0; i < 1000; ++i) rows += cat("{\"k", i, "\": 1}\n");
  CHECK_NOTHROW(csv_of_metrics(rows, "m"));
  CHECK(contains(message_of<DataError>([&] { csv_of_metrics(rows + "{\"x\": 1}\n", "m"); }),
                 "m:1001: expected at most 1000 different keys in all lines together"));
  const TempDir dir;
  std::string row = "{\"step\": 1";
  for (int i = 0; i < 1001; ++i) row += cat(", \"k", i, "\": 1");
  dir.write("metrics.jsonl", row + "}\n");
  CHECK(contains(message_of<DataError>([&] { read_run(dir.path()); }),
                 "metrics.jsonl:1: expected at most 1000 different keys in all lines together"));
}

}  // namespace shale::models
