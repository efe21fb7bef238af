#include "shale/models/views/run_data.h"

#include "shale/base/error.h"
#include "shale/models/views/curve.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

using test::contains;
using test::message_of;
using test::TempDir;

TEST_CASE("a run is what its folder has, and metrics are enough", "[run_data]") {
  const TempDir dir;
  CHECK(contains(message_of<MissingInputError>([&] { read_run(dir.path()); }), "metrics.jsonl"));
  const std::string rows = to_json_line(StepMetrics{.step = 1, .loss = 3}) +
                           to_json_line(EvalMetrics{.step = 1, .val_loss = 2}) +
                           to_json_line(RanksMetrics{.step = 1, .ranks = 2}) + "{\"step\": 2, \"lo";
  const std::string metrics = dir.write("metrics.jsonl", rows);
  const RunData bare = read_run(dir.path());
  CHECK(bare.steps.size() == 1);
  CHECK(bare.evals.size() == 1);
  CHECK(bare.ranks.size() == 1);
  CHECK_FALSE(bare.status);
  CHECK(bare.options.empty());
  CHECK(read_run(metrics).steps == bare.steps);

  write_run_status(dir.path(), {.state = RunState::kDone, .step = 1});
  dir.write("config.json", "{\"lr\": 0.5, \"optimizer\": \"adamw\", \"export\": null}");
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
  const RunData run = read_run(dir.path());
  CHECK(run.starts.size() == 1);
  CHECK(run.checkpoints == std::vector<int64_t>{20, 100});
  CHECK(run.status->state == RunState::kDone);
  CHECK(run.options == std::vector<std::pair<std::string, std::string>>{
                           {"export", "null"}, {"lr", "0.5"}, {"optimizer", "adamw"}});
  CHECK(run.warnings.size() == RunData::kMostWarnings);
  CHECK(run.warnings_left_out == 3);
  CHECK(run.warnings.back().rank == 202);
}

TEST_CASE("rows are sorted by step, and the last of a step stays", "[run_data]") {
  const RunData run =
      run_of({StepMetrics{.step = 2, .loss = 1}, StepMetrics{.step = 9, .loss = 2},
              EvalMetrics{.step = 9, .val_loss = 3}, StepMetrics{.step = 1},
              StepMetrics{.step = 2, .loss = 4}, EvalMetrics{.step = 2, .val_loss = 5}});
  REQUIRE(run.steps.size() == 3);
  CHECK(run.steps[0].step == 1);
  CHECK(run.steps[1] == StepMetrics{.step = 2, .loss = 4});
  CHECK(run.steps[2].step == 9);
  CHECK(validation_curve(run) == CurvePoints{{2, 5}, {9, 3}});
}

TEST_CASE("what is malformed is named with its line", "[run_data]") {
  const TempDir dir;
  dir.write("metrics.jsonl", "");
  dir.write("samples.jsonl", "{\"step\": 1, \"tag\": \"a\"}\n");
  CHECK(contains(message_of<DataError>([&] { read_run(dir.path()); }), "samples.jsonl:1"));
}

TEST_CASE("a warning that was cut off leaves the others readable", "[run_data]") {
  const TempDir dir;
  dir.write("metrics.jsonl", "");
  const std::string line =
      "{\"time\": \"T\", \"host\": \"h\", \"rank\": 1, \"level\": \"warning\", \"text\": \"x\"}\n";
  dir.write("warnings.jsonl", line + "{\"time\": \"T\", \"ho" + line + line);
  const RunData run = read_run(dir.path());
  CHECK(run.warnings.size() == 2);
  CHECK(run.warnings_unreadable == 1);
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
                 "m:1001: expected at most 1000 keys"));
}

}  // namespace shale::models
