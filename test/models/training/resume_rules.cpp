#include "shale/models/training/resume_rules.h"

#include <functional>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/removed_options.h"
#include "shale/models/language/task.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// Options of a run, resolved for a number of ranks, and the description that its checkpoints store.
struct Described {
  explicit Described(const TempDir& dir,
                     const std::function<void(models::TrainConfig&)>& change = {}, int of = 1)
      : ranks(of) {
    std::string text;
    for (int line = 0; line < 2000; ++line) text += cat("line ", line, "\n");
    config.language.source.data = dir.write("text.txt", text);
    if (change) change(config);
    describe();
  }
  void describe() {
    ConfigSpec spec("train_lm", "");
    models::describe(spec, config);
    models::resolve(config, ranks);
    run = models::describe_run(spec, config.run, models::LanguageTask(config));
  }
  models::TrainConfig config;
  int ranks;
  models::RunDescription run;
};

std::string refusal(const Described& stored, const Described& now) {
  return message_of<ConfigError>([&] { check_same_run(stored.run, now.run, "step_00000005", 5); });
}

}  // namespace

TEST_CASE("where and how fast a run runs may change on resume") {
  const TempDir dir;
  const Described stored(dir);
  const Described now(
      dir,
      [](models::TrainConfig& c) {
        c.run.micro_batch = 2;
        c.run.global_batch = 24;
        c.run.zero = 3;
        c.run.dtype = models::Precision::kBF16;
        c.run.offload_to = "params";
        c.run.recompute = Recompute::kFull;
        c.run.threads = 2;
        c.run.out = "elsewhere";
        c.run.resume = "auto";
        c.run.save_every = 7;
        c.language.layers = 4;  // the preset has 4 layers, too
      },
      3);
  check_same_run(stored.run, now.run, "step_00000005", 5);
  CHECK(stored.run.values != now.run.values);
}

TEST_CASE("other kernels left out on the GPUs are refused with --reproducible alone") {
  const TempDir dir;
  for (const bool reproducible : {false, true}) {
    const auto described = [&](const std::vector<std::string>& kernels) {
      Described run(dir, [&](models::TrainConfig& c) { c.run.reproducible = reproducible; });
      models::add_left_out(run.run, kernels);
      return run;
    };
    const Described none = described({}), one = described({"gemm/fused"});
    check_same_run(one.run, one.run, "step_00000005", 5);
    for (const auto& [stored, now] : {std::pair(&none, &one), {&one, &none}}) {
      if (!reproducible) {
        CHECK_NOTHROW(check_same_run(stored->run, now->run, "step_00000005", 5));
        continue;
      }
      const std::string message = refusal(*stored, *now);
      CHECK(contains(message, "kernels that the GPUs leave out were "));
      CHECK(contains(message, "[\"gemm/fused\"]"));
      CHECK(contains(message, "none"));
    }
  }
}

TEST_CASE("what would make it another run is refused, with its name and both values") {
  const TempDir dir;
  const Described stored(dir);
  const auto refused = [&](const std::function<void(models::TrainConfig&)>& change) {
    return refusal(stored, Described(dir, change));
  };
  const std::string seed = refused([](models::TrainConfig& c) { c.run.seed = 5; });
  CHECK(contains(seed, "--seed was 1234 in step_00000005, is 5 now"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.run.lr = 0.5; }), "--lr was 0.003"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.language.seq_len = 64; }),
                 "--seq-len was 256"));
  CHECK(contains(
      refused([](models::TrainConfig& c) { c.run.optimizer = models::OptimizerKind::kLion; }),
      "--optimizer was \"adamw\""));
  // The message contains only the differing part of the shape.
  CHECK(contains(refused([](models::TrainConfig& c) { c.language.layers = 3; }),
                 "the model shape was {\"layers\":4} in"));
  CHECK(contains(refused([](models::TrainConfig& c) { c.language.source.val_fraction = 0.2; }),
                 "--val-fraction was 0.1"));
  TempDir other;
  Described grown(other);
  const std::string text = read_file(grown.config.language.source.data);
  other.write("text.txt", text + text);
  grown.describe();
  CHECK(contains(refusal(stored, grown), "the training data was"));
}

TEST_CASE("values that differ are said as a user would write them") {
  const TempDir dir;
  const Described cosine(dir),
      constant(dir, [](models::TrainConfig&c) { c.run.schedule = optim::Decay::kConstant; });
  CHECK(
      contains(refusal(cosine, constant), "--min-lr was 0.0003 in step_00000005, is the default"));
  CHECK(
      contains(refusal(constant, cosine), "--min-lr was the default in step_00000005, is 0.0003"));
  const Described close(dir, [](models::TrainConfig& c) { c.run.min_lr = 0.0003; });
  CHECK(contains(refusal(cosine, close), "--min-lr was 0.00030000000000000003 in"));
}

TEST_CASE("everything that differs is named at once, and facts only where all options agree") {
  const TempDir dir;
  const std::string text = refusal(Described(dir), Described(dir, [](models::TrainConfig& c) {
                                     c.run.seed = 5;
                                     c.run.lr = 0.5;
                                     c.language.layers = 3;
                                   }));
  CHECK(contains(text, "--lr was 0.003"));
  CHECK(contains(text, "--seed was 1234, is 5 now"));
  CHECK(!contains(text, "model shape"));
}

TEST_CASE("an option that a checkpoint of an older version has not is refused where it was given") {
  const TempDir dir;
  Described old(dir), now(dir);
  CHECK(old.run.values.erase("beta1") == 1);
  check_same_run(old.run, now.run, "step_00000005", 5);
  now.run.given.insert("beta1");
  CHECK(contains(refusal(old, now), "--beta1 was not known in step_00000005, is 0.9"));
  CHECK(contains(refusal(now, old), "--beta1 was 0.9 in step_00000005, is not known now"));
  old.run.values["momentum"] = "0.9";  // old versions stored the momentum for AdamW too
  now.run.given.clear();
  check_same_run(old.run, now.run, "step_00000005", 5);
}

TEST_CASE("an option that was removed since is refused where the run used it") {
  const TempDir dir;
  Described old(dir), now(dir);
  old.run.values["local-most"] = "4";  // 4 was the default in versions that had this option
  check_same_run(old.run, now.run, "step_00000005", 5);
  old.run.values["local-most"] = "8";
  CHECK(contains(refusal(old, now), "step_00000005 is of a run with --local-most 8, which was"));
  old.run.values.erase("local-most");
  old.run.values["tensor-leaves"] = "4";  // this removed option could change when a run was resumed
  check_same_run(old.run, now.run, "step_00000005", 5);
  old.run.values["optimizer"] = "\"01-adam\"";
  CHECK(refusal(old, now) ==
        "resume: step_00000005 is of a run with --optimizer 01-adam, which was removed; use "
        "--optimizer 1bit-adam in a new run, or go on with the version that wrote it");
}

TEST_CASE("a checkpoint of a version with more options goes on where its run used none of them") {
  const TempDir dir;
  const Described now(dir);
  // Version 0.2.0 wrote this file, before some options were removed, for a run that used none of
  // them.
  const Json former = Json::parse(read_file(fixture_path("former_options.json")), {}, "fixture");
  Described old(dir);
  for (const auto& [name, value] : former.items()) old.run.values[name] = value.dump();
  check_same_run(old.run, now.run, "step_00000005", 5);
  int refused = 0;
  for (const auto& [name, value] : former.items()) {
    CAPTURE(name);
    const RemovedOption* const removed = find_removed_option(name);
    REQUIRE(removed != nullptr);
    CHECK(removed->unused == value.dump());
    Described other = old;
    other.run.values[name] = "77";
    if (removed->may_change) {
      check_same_run(other.run, now.run, "step_00000005", 5);
    } else {
      CHECK(contains(refusal(other, now), cat("--", name, " 77, which was removed; ")));
      ++refused;
    }
  }
  CHECK(refused == 9);
}

TEST_CASE("other data of the same size is refused, and a checkpoint that knows no content is not") {
  const TempDir dir, other_dir;
  const Described stored(dir);
  Described now(other_dir);
  std::string text = read_file(now.config.language.source.data);
  std::swap(text[100], text[105]);
  other_dir.write("text.txt", text);
  now.describe();
  CHECK(stored.run.values.at("training data") == now.run.values.at("training data"));
  CHECK(contains(refusal(stored, now), "the training data checksum was"));
  // Older versions recorded only names and sizes of data files.
  Described old = stored;
  CHECK(old.run.values.erase("training data checksum") == 1);
  // Some older versions recorded a checksum of all bytes too.
  old.run.values["whole training data checksum"] = "\"1\"";
  check_same_run(old.run, now.run, "step_00000005", 5);
}

TEST_CASE("other weights of a mixture are refused") {
  const TempDir dir;
  const auto with = [&](const char* first, const char* second) {
    return Described(dir, [&](models::TrainConfig& c) {
      const std::string text = c.language.source.data;
      c.language.source.data = cat(text, ":", first, ",", text, ":", second);
    });
  };
  const Described stored = with("0.7", "0.3");
  check_same_run(stored.run, with("7", "3").run, "step_00000005", 5);
  CHECK(contains(refusal(stored, with("0.6", "0.4")), "the mixture of training data checksum was"));
}

TEST_CASE("steps may change where the learning rate does not depend on them") {
  const TempDir dir;
  const auto with = [&](optim::Decay schedule, int64_t steps) {
    return Described(dir, [&](models::TrainConfig& c) {
      c.run.schedule = schedule;
      c.run.steps = steps;
      c.run.warmup_steps = 10;
    });
  };
  const Described longer = with(optim::Decay::kConstant, 2000);
  check_same_run(with(optim::Decay::kConstant, 1000).run, longer.run, "", 5);
  check_same_run(with(optim::Decay::kInverseSqrt, 1000).run,
                 with(optim::Decay::kInverseSqrt, 2000).run, "", 5);
  CHECK(contains(refusal(with(optim::Decay::kCosine, 1000), with(optim::Decay::kCosine, 2000)),
                 "--steps was 1000 in step_00000005, is 2000 now, and the schedule depends"));
}

TEST_CASE("the decay of wsd may be planned anew until it begins") {
  const TempDir dir;
  const auto with = [&](int64_t steps, int64_t decay_steps, double min_lr = -1) {
    return Described(dir, [&](models::TrainConfig& c) {
      c.run.schedule = optim::Decay::kWsd;
      c.run.steps = steps;
      c.run.warmup_steps = 10;
      c.run.decay_steps = decay_steps;
      c.run.min_lr = min_lr;
    });
  };
  const Described stored = with(1000, 200);
  const auto refused = [&](const Described& now, int64_t step) {
    return message_of<ConfigError>([&] { check_same_run(stored.run, now.run, "ckpt", step); });
  };
  check_same_run(stored.run, stored.run, "ckpt", 1000);
  check_same_run(stored.run, with(2000, 200).run, "ckpt", 800);
  check_same_run(stored.run, with(700, 100, 0).run, "ckpt", 600);
  CHECK(
      contains(refused(with(2000, 200), 801), "--steps was 1000 in ckpt, is 2000 now; after 801"));
  CHECK(contains(refused(with(1000, 500), 501), "--decay-steps was 200 in ckpt, is 500 now"));
  CHECK(contains(refused(with(1000, 200, 0), 900), "--min-lr was"));
  Described shaped = with(1000, 200);
  shaped.config.run.schedule = optim::Decay::kWsdOneMinusSqrt;
  shaped.describe();
  check_same_run(stored.run, shaped.run, "ckpt", 800);
  CHECK(contains(refused(shaped, 801), "--schedule was \"wsd\" in ckpt"));
  shaped.config.run.schedule = optim::Decay::kLinear;
  shaped.describe();
  CHECK(contains(refused(shaped, 100), "--schedule was"));
  Described other = with(1000, 200);
  other.config.run.lr = 0.5;
  other.describe();
  CHECK(contains(refused(other, 100), "--lr was 0.003"));
}

}  // namespace shale::test
