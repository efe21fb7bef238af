// Tests runs whose data has values that are not finite, with --skip-non-finite and --skip-samples.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/trainer.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/loss.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

constexpr int64_t kBatch = 4, kClasses = 3;

class Line : public Module {
 public:
  Line() : layer(this, "layer", 2, kClasses, Init::normal(0.3f)) {}
  nn::Linear layer;
};

// Classifies points that depend only on their position. Points in the bad range are NaN.
class PointTask : public models::Task {
 public:
  PointTask(int64_t first_bad, int64_t last_bad) : first_bad_(first_bad), last_bad_(last_bad) {}

  Module& model() override { return model_; }
  std::vector<Module*> units() override { return {&model_.layer}; }
  std::unique_ptr<models::Task> twin(const models::RunConfig&) const override {
    return std::make_unique<PointTask>(first_bad_, last_bad_);
  }
  BatchSource train_batches(const models::BatchPlan& plan) override {
    return [plan, this](int64_t index, Batch& batch) {
      const auto [step, micro] = plan.layout.place_of(plan.first_step, index);
      batch.first_position = plan.layout.first_position(step, plan.rank, micro);
      batch.count = kBatch;
      const auto labels = batch.set("labels", DType::kI32, {kBatch}).values<int32_t>();
      const auto x = batch.set("x", DType::kF32, {kBatch, 2}).values<float>();
      for (int64_t i = 0; i < kBatch; ++i) {
        const int64_t sample = batch.first_position + i + 1;  // samples are counted from 1
        const bool is_bad = sample >= first_bad_ && sample <= last_bad_;
        labels[size_t(i)] = int32_t(sample % kClasses);
        x[size_t(2 * i)] = is_bad ? NAN : std::sin(float(sample));
        x[size_t(2 * i + 1)] = std::cos(float(sample));
      }
      return true;
    };
  }
  Tensor loss(const DeviceBatch& batch) override {
    return cross_entropy(model_.layer.forward(batch["x"]), batch["labels"], kClasses);
  }
  double step_weight(int64_t) const override { return kBatch; }
  void check_evaluation() const override {}
  models::Evaluation evaluate(const models::TaskContext&) override { return {}; }
  models::SampleUnit unit() const override { return {}; }
  std::vector<std::string> summary() const override { return {}; }
  std::map<std::string, std::string> same_on_all_ranks() const override { return {}; }
  std::map<std::string, std::string> facts() const override { return {}; }
  std::map<std::string, std::string> data_checksums() const override { return {}; }

 private:
  Line model_;
  int64_t first_bad_, last_bad_;
};

struct Bad {
  int64_t first = 0, last = -1;
};

// Trains in `out` and returns the loss of each step.
std::vector<float> train(const std::string& out, Bad bad, std::vector<std::string> flags) {
  comm::World world(0, nullptr);
  models::RunConfig config;
  ConfigSpec spec("task", "points");
  describe(spec, config, {});
  flags.insert(flags.begin(),
               {"task", "--out", out, "--lr", "0.1", "--micro-batch", std::to_string(kBatch),
                "--threads", "1", "--schedule", "constant", "--quiet", "--report-every", "0"});
  std::vector<const char*> arguments;
  for (const std::string& flag : flags) arguments.push_back(flag.c_str());
  parse_config(spec, static_cast<int>(arguments.size()), arguments.data());
  resolve(config, 1);
  PointTask task(bad.first, bad.last);
  resolve_steps(config, spec, 0, 1);
  // run() may throw NonFiniteError.
  const ExitCode code = models::Trainer(config, spec, task, world).run();
  CHECK(code == ExitCode::kOk);
  std::vector<float> losses;
  for (const MetricsRow& row : read_metrics(out + "/metrics.jsonl")) {
    if (const auto* step = std::get_if<StepMetrics>(&row)) losses.push_back(step->loss);
  }
  return losses;
}

}  // namespace

TEST_CASE("a step with a value that is not finite ends the run, or is skipped") {
  const TempDir dir;
  const Bad bad{.first = 18, .last = 18};  // sample 18 is in step 5
  const auto ends = [&] { train(dir.file("ends"), bad, {"--steps", "8"}); };
  CHECK(contains(message_of<NonFiniteError>(ends), "step 5: the loss is"));
  const auto skipped = train(dir.file("a"), bad, {"--steps", "8", "--skip-non-finite", "1"});
  REQUIRE(skipped.size() == 8);
  for (size_t i = 0; i < 8; ++i) CHECK(std::isfinite(skipped[i]) == (i != 4));
  // A skipped step only moves on in the data. A run that leaves out its samples has the same later
  // losses.
  const auto plain = train(dir.file("plain"), {}, {"--steps", "7", "--skip-samples", "17-20"});
  CHECK(std::vector(skipped.begin() + 5, skipped.end()) ==
        std::vector(plain.begin() + 4, plain.end()));
}

TEST_CASE("steps that are not finite are skipped up to a number in a row") {
  const TempDir dir;
  const Bad two{.first = 18, .last = 22};  // samples of steps 5 and 6
  const auto one = [&] {
    train(dir.file("one"), two, {"--steps", "8", "--skip-non-finite", "1"});
  };
  CHECK(contains(message_of<NonFiniteError>(one), "the limit of --skip-non-finite 1 is reached"));
  CHECK(train(dir.file("two"), two, {"--steps", "8", "--skip-non-finite", "2"}).size() == 8);
}

TEST_CASE("bad samples are stepped over after a rollback, and a resumed run goes on behind them") {
  const TempDir dir;
  const Bad bad{.first = 18, .last = 30};
  const std::vector<std::string> skip = {"--steps", "9", "--skip-samples", "18-30"};
  const auto want = train(dir.file("want"), bad, skip);
  REQUIRE(want.size() == 9);
  const auto fails = [&] {
    train(dir.file("out"), bad, {"--steps", "9", "--save-every", "2"});
  };
  CHECK_THROWS_AS(fails(), NonFiniteError);
  std::vector<std::string> again = skip;
  again.insert(again.end(), {"--save-every", "1", "--resume", "auto"});
  CHECK(train(dir.file("out"), bad, again) == want);
  // Resumes from a checkpoint after the bad samples, with and without --skip-samples.
  for (const bool with : {true, false}) {
    const std::string out = dir.file(with ? "with" : "without");
    std::vector<std::string> flags = {"--steps", "9", "--resume",
                                      dir.file("out") + "/checkpoints/step_00000008"};
    if (with) flags.insert(flags.end(), {"--skip-samples", "18-30"});
    const auto rest = train(out, bad, flags);
    REQUIRE(rest.size() == 1);
    CHECK(rest.front() == want.back());
  }
}

TEST_CASE("steps around a range of samples") {
  const BatchLayout plain{.global_batch = 10};
  BatchLayout layout = plain;
  CHECK(layout.skip(21, 40, 0, 100) == 2);  // the range has whole steps
  CHECK(layout.begin(2) == 40);
  CHECK(layout.begin(1) == 10);
  layout = plain;
  CHECK(layout.skip(20, 21, 0, 100) == 1);  // step 1 has samples 11 to 20
  CHECK(layout.begin(1) == 21);
  layout = plain;
  CHECK(layout.skip(1, 5, 0, 100) == 0);
  CHECK(layout.begin(0) == 5);
  layout = plain;
  CHECK(layout.skip(21, 40, 3, 100) == 3);  // resumes in the middle of the range
  CHECK(layout.begin(3) == 40);
  layout = plain;
  CHECK_FALSE(layout.skip(21, 40, 4, 100));  // resumes after the range
  CHECK(layout.begin(4) == 40);
  layout = plain;
  CHECK_FALSE(layout.skip(2000, 2001, 0, 100));  // the range is after the last step
  CHECK(layout.begin(99) == 990);
}

TEST_CASE("--skip-samples takes a range from 1 on") {
  CHECK_FALSE(models::parse_sample_range(""));
  CHECK(models::parse_sample_range("3-9") == std::pair(int64_t{3}, int64_t{9}));
  for (const char* const wrong : {"3", "0-4", "4-3", "-4", "a-b", "3-", "1-9007199254740993"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(models::parse_sample_range(wrong), ConfigError);
  }
}

}  // namespace shale::test
