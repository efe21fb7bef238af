#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/training/run_config.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

// Returns the number of steps of a run with these flags, whose data has `samples` samples.
int64_t steps_of(std::vector<const char*> flags, int64_t samples) {
  RunConfig config;
  ConfigSpec spec("train", "of a test");
  describe(spec, config, {});
  flags.insert(flags.begin(), {"train", "--lr", "1", "--micro-batch", "8"});
  parse_config(spec, static_cast<int>(flags.size()), flags.data());
  resolve(config, 1);
  resolve_steps(config, spec, samples, 1);
  CHECK(config.warmup_steps == config.steps / 20);
  return config.steps;
}

}  // namespace

TEST_CASE("epochs are rounded up to steps, and the fewer of both count") {
  CHECK(steps_of({"--epochs", "2"}, 80) == 20);
  CHECK(steps_of({"--epochs", "2"}, 81) == 21);
  CHECK(steps_of({"--epochs", "0.5"}, 80) == 5);
  CHECK(steps_of({"--epochs", "1"}, 3) == 1);
  CHECK(steps_of({"--epochs", "2", "--steps", "7"}, 80) == 7);
  CHECK(steps_of({"--epochs", "2", "--steps", "70"}, 80) == 20);
  CHECK(steps_of({}, 80) == 1000);
  // Ten steps of 16 samples are followed by steps of 8 samples.
  CHECK(steps_of({"--epochs", "1", "--batch-ramp", "16:10"}, 800) == 90);
  CHECK(steps_of({"--epochs", "1", "--batch-ramp", "16:10"}, 40) == 3);
}

TEST_CASE("epochs of data without a length are refused") {
  CHECK(test::contains(test::message_of<ConfigError>([] {
                         steps_of({"--epochs", "2"}, 0);
                       }),
                       "--epochs: this data has no length; use --steps"));
  CHECK(test::contains(test::message_of<ConfigError>([] {
                         steps_of({"--epochs", "1e9"}, int64_t{1} << 60);
                       }),
                       "too many"));
}

}  // namespace shale::models
