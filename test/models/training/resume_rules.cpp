#include "shale/models/training/resume_rules.h"

#include <set>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// A run's options, resolved for so many ranks, and what a checkpoint says of it.
struct Described {
  explicit Described(const TempDir& dir,
                     const std::function<void(models::TrainConfig&)>& change = {}, int ranks = 1) {
    std::string text;
    for (int line = 0; line < 2000; ++line) text += cat("line ", line, "\n");
    config.data = dir.write("text.txt", text);
    if (change) change(config);
    models::resolve(config, ranks);
    const DatasetSplits data =
        open_dataset({.path = config.data, .val_fraction = config.val_fraction});
    run = models::describe_run(config, models::model_config(config, true), data);
  }
  models::TrainConfig config;
  models::RunDescription run;
};

std::string refusal(const Described& stored, const Described& now) {
  return message_of<ConfigError>(
      [&] { check_same_run(stored.run, now.run, now.config, "step_00000005"); });
}

}  // namespace

TEST_CASE("where and how fast a run runs may change on resume") {
  const TempDir dir;
  const Described stored(dir);
  const Described now(
      dir,
      [](models::TrainConfig& c) {
        c.micro_batch = 2;
        c.global_batch = 24;
        c.zero = 3;
        c.dtype = "bf16";
        c.offload = models::OffloadKind::kParameters;
        c.recompute = Recompute::kFull;
        c.threads = 2;
        c.out = "elsewhere";
        c.resume = "auto";
        c.save_every = 7;
        c.layers = 4;  // what the preset has
      },
      3);
  check_same_run(stored.run, now.run, now.config, "step_00000005");
  CHECK(stored.run != now.run);
}

TEST_CASE("what would make it another run is refused, with its name and both values") {
  const TempDir dir;
  const Described stored(dir);
  const auto refused = [&](const std::function<void(models::TrainConfig&)>& change) {
    return refusal(stored, Described(dir, change));
  };
  const std::string seed = refused([](models::TrainConfig& c) { c.seed = 5; });
  CHECK(contains(seed, "--seed was 1234 in step_00000005, is 5 now"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.lr = 0.5; }), "--lr was 0.003"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.seq_len = 64; }), "--seq-len was 256"));
  CHECK(
      contains(refused([](models::TrainConfig& c) { c.optimizer = models::OptimizerKind::kLion; }),
               "--optimizer was \"adamw\""));
  CHECK(contains(refused([](models::TrainConfig& c) { c.layers = 3; }), "\"layers\":4,"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.layers = 3; }), "the model shape was"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.val_fraction = 0.2; }),
                 "--val-fraction was 0.1"));
  TempDir other;
  Described grown(other);
  std::string text = read_file(grown.config.data);
  other.write("text.txt", text + text);
  const DatasetSplits data = open_dataset({.path = grown.config.data});
  grown.run = models::describe_run(grown.config, models::model_config(grown.config, true), data);
  CHECK(contains(refusal(stored, grown), "the training data was"));
}

TEST_CASE("steps may change where the learning rate does not depend on them") {
  const TempDir dir;
  const auto with = [&](optim::Decay schedule, int64_t steps) {
    return Described(dir, [&](models::TrainConfig& c) {
      c.schedule = schedule;
      c.steps = steps;
      c.warmup_steps = 10;
    });
  };
  const Described longer = with(optim::Decay::kConstant, 2000);
  check_same_run(with(optim::Decay::kConstant, 1000).run, longer.run, longer.config, "");
  CHECK(contains(refusal(with(optim::Decay::kCosine, 1000), with(optim::Decay::kCosine, 2000)),
                 "--steps was 1000 in step_00000005, is 2000 now, and the schedule depends"));
}

TEST_CASE("every option that may change on resume is an option") {
  models::TrainConfig config;
  ConfigSpec spec("train_lm", "");
  describe(spec, config);
  std::set<std::string> known;
  for (const auto& [name, value] : spec.values()) known.insert(name);
  for (const std::string& name : models::options_free_to_change()) {
    CAPTURE(name);
    CHECK(known.contains(name));
  }
}

TEST_CASE("an option that a checkpoint does not know, or only it knows, is refused") {
  const TempDir dir;
  Described stored(dir), now(dir);
  stored.run["old-option"] = "1";
  CHECK(contains(refusal(stored, now), "--old-option was 1"));
  stored.run.erase("old-option");
  now.run["new-option"] = "2";
  CHECK(contains(refusal(stored, now), "--new-option was not known"));
}

}  // namespace shale::test
