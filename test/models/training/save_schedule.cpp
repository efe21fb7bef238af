#include "shale/models/training/save_schedule.h"

#include "shale/base/text.h"
#include "shale/models/language/config.h"
#include "shale/test/support/catch.h"

namespace shale::models {

using std::chrono::minutes;
using std::chrono::seconds;

namespace {

const SaveSchedule::Time kStart{std::chrono::hours(1000)};

}  // namespace

TEST_CASE("minutes count from the start of the run, then from the last save", "[save_schedule]") {
  SaveSchedule schedule(/*every_steps=*/0, /*minutes=*/10, kStart);
  REQUIRE(schedule.has_minutes());
  CHECK_FALSE(schedule.due_by_time(kStart));
  CHECK_FALSE(schedule.due_by_time(kStart + seconds(599)));
  CHECK(schedule.due_by_time(kStart + seconds(600)));
  CHECK(schedule.due_by_time(kStart + minutes(60)));  // a save stays due until it happens
  schedule.saved(kStart + minutes(12), kStart + minutes(12));
  CHECK_FALSE(schedule.due_by_time(kStart + minutes(12)));
  CHECK_FALSE(schedule.due_by_time(kStart + minutes(20)));
  CHECK(schedule.due_by_time(kStart + minutes(22)));
}

TEST_CASE("minutes may be a fraction", "[save_schedule]") {
  const SaveSchedule schedule(0, 0.5, kStart);
  CHECK_FALSE(schedule.due_by_time(kStart + seconds(29)));
  CHECK(schedule.due_by_time(kStart + seconds(30)));
}

TEST_CASE("without minutes no time is too long", "[save_schedule]") {
  const SaveSchedule schedule(5, 0, kStart);
  CHECK_FALSE(schedule.has_minutes());
  CHECK_FALSE(schedule.due_by_time(kStart + std::chrono::hours(24 * 365)));
}

TEST_CASE("steps count from the first step of training, whatever the clock says",
          "[save_schedule]") {
  SaveSchedule schedule(5, 10, kStart);
  CHECK(schedule.due_by_steps(5));
  CHECK_FALSE(schedule.due_by_steps(6));
  // Saves for another reason. This does not change the schedule by steps.
  schedule.saved(kStart + minutes(9), kStart + minutes(9));
  CHECK(schedule.due_by_steps(10));
  CHECK_FALSE(SaveSchedule(0, 10, kStart).due_by_steps(5));
}

TEST_CASE("a save that failed is due in 1, 2, 4 minutes, and hopeless after an hour",
          "[save_schedule]") {
  SaveSchedule schedule(0, 0, kStart);
  CHECK_FALSE(schedule.fails());
  SaveSchedule::Time now = kStart;
  int tries = 0;
  for (minutes delay(1); !schedule.is_hopeless(now); delay *= 2, ++tries) {
    schedule.failed(now);
    CHECK(schedule.delay() == delay);
    CHECK_FALSE(schedule.due_by_time(now + delay - seconds(1)));
    now += delay;
    CHECK(schedule.due_by_time(now));
    schedule.saved(now, now);  // the state is copied, and the files are being written
    CHECK_FALSE(schedule.due_by_time(now));
  }
  CHECK(tries == 6);
  CHECK(now - kStart == minutes(63));
  schedule.written(now);
  CHECK_FALSE(schedule.due_by_time(now + std::chrono::hours(24)));
  schedule.failed(now + std::chrono::hours(24));
  CHECK_FALSE(schedule.is_hopeless(now + std::chrono::hours(24)));
  CHECK(schedule.delay() == minutes(1));
}

TEST_CASE("automatic minutes follow from the pause of a save and the rate of failures",
          "[save_schedule]") {
  SaveSchedule schedule(0, -1, kStart);
  CHECK(schedule.is_auto());
  CHECK(schedule.minutes() == 10);  // no save has been measured yet
  // Eight failures in ten hours are one every 4,500 s.
  schedule.set_failures(8, 36000, /*ranks=*/1);
  CHECK(schedule.between_failures_s(kStart) == Approx(4500).epsilon(0.001));
  // A save pauses training for 4 s: the best interval is sqrt(2 * 4 * 4500) = 190 s.
  schedule.saved(kStart, kStart + seconds(4));
  schedule.written(kStart + seconds(14));
  CHECK(schedule.minutes() == Approx(190 / 60.).epsilon(0.01));
  CHECK_FALSE(schedule.due_by_time(kStart + seconds(4 + 185)));
  CHECK(schedule.due_by_time(kStart + seconds(4 + 195)));
  // If writing takes longer than this interval, its duration is the interval.
  schedule.saved(kStart, kStart + seconds(4));
  schedule.written(kStart + seconds(304));
  CHECK(schedule.minutes() == 10);
  // If a run has not failed yet, it has the failure rate of Llama 3's GPUs: with 16,384 GPUs one
  // failure every 11,135 s.
  schedule.set_failures(0, 36000, 16384);
  CHECK(schedule.between_failures_s(kStart) == Approx(54 * 86400. / 419));
  // One device fails so rarely that the interval is the longest allowed one. With frequent failures
  // and quick saves, it is the shortest, a minute.
  schedule.set_failures(0, 0, 1);
  schedule.saved(kStart, kStart + seconds(4));
  schedule.written(kStart + seconds(5));
  CHECK(schedule.minutes() == 120);
  schedule.set_failures(1000, 1000, 1);
  schedule.written(kStart + seconds(5));
  CHECK(schedule.minutes() == 1);
}

TEST_CASE("given minutes stay as they are", "[save_schedule]") {
  SaveSchedule schedule(0, 10, kStart);
  schedule.saved(kStart, kStart + seconds(4));
  schedule.written(kStart + seconds(5));
  CHECK(schedule.minutes() == 10);
}

TEST_CASE("--save-minutes takes fractions, refuses less than nothing, and is in the help",
          "[save_schedule]") {
  const auto parse = [](TrainConfig& config, std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"train_lm", "--data", "text.txt"});
    ConfigSpec spec("train_lm", "trains");
    describe(spec, config);
    return parse_config(spec, static_cast<int>(arguments.size()), arguments.data());
  };
  TrainConfig config;
  CHECK(config.run.save_minutes == 0);  // saving by time is off by default
  parse(config, {"--save-minutes", "2.5"});
  CHECK(config.run.save_minutes == 2.5);
  CHECK_THROWS_AS(parse(config, {"--save-minutes", "-1"}), ConfigError);
  parse(config, {"--save-minutes", "auto"});
  CHECK(config.run.save_minutes == -1);
  const ParseResult help = parse(config, {"--help", "all"});
  const size_t place = help.output.find("--save-minutes");
  REQUIRE(place != std::string::npos);
  CHECK(test::contains(help.output.substr(place, 320), "write a checkpoint if the last one"));
  CHECK(test::contains(help.output.substr(place, 320), "0: off"));
}

}  // namespace shale::models
