#include "shale/models/plan/time/goodput.h"

#include <cmath>
#include <random>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

// Mean seconds between failures in Llama 3's training on 16,384 GPUs. In 54 days it had 466
// interruptions, of which 419 were unplanned: one every 3.09 hours (arXiv:2407.21783, section
// 3.3.4).
constexpr double kLlama3 = 54. * 24 * 3600 / 419;

// Returns the goodput (useful share of the time) of a simulated job that trains, saves and fails.
double simulated(const FailureModel& model, double interval_s, double seconds) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> next(1 / model.between_failures_s);
  double time = 0, done = 0;
  double failure = next(random);
  while (time < seconds) {
    if (time + interval_s + model.save_s <= failure) {
      time += interval_s + model.save_s;
      done += interval_s;
      continue;
    }
    time = failure;
    // A failure during a restart causes another restart.
    for (failure = time + next(random); failure < time + model.restart_s;) {
      time = failure;
      failure = time + next(random);
    }
    time += model.restart_s;
  }
  return done / time;
}

}  // namespace

TEST_CASE("the best interval is close to Young's, and the loss to his first order") {
  CHECK(kLlama3 == Approx(11135).epsilon(1e-3));
  struct Row {
    double save_s, interval_s, loss;
  };
  for (const Row& row : {Row{10, 472, 0.042}, Row{60, 1156, 0.104}, Row{300, 2585, 0.232}}) {
    CAPTURE(row.save_s);
    const double young = std::sqrt(2 * row.save_s * kLlama3);
    CHECK(young == Approx(row.interval_s).epsilon(0.002));
    CHECK(row.save_s / young + young / (2 * kLlama3) == Approx(row.loss).epsilon(0.01));
    const Goodput best = best_goodput({.between_failures_s = kLlama3, .save_s = row.save_s});
    CHECK(best.interval_s == Approx(young).epsilon(0.1));
    CHECK(1 - best.share == Approx(row.loss).epsilon(0.12));
    // Llama 3 reports an effective training time of more than 90%. That requires saves of less than
    // a minute.
    CHECK((best.share > 0.9) == (row.save_s < 60));
  }
}

TEST_CASE("no other interval has a larger share") {
  const FailureModel model{
      .between_failures_s = 5000, .save_s = 40, .write_s = 100, .restart_s = 300};
  const Goodput best = best_goodput(model);
  for (const double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.}) {
    CHECK(goodput(model, factor * best.interval_s).share < best.share);
  }
  CHECK(best.share < best_goodput({.between_failures_s = 5000, .save_s = 40}).share);
}

TEST_CASE("the share is that of a job that fails at random") {
  for (const double interval_s : {100., 700., 3000.}) {
    const FailureModel model{.between_failures_s = 2000, .save_s = 50, .restart_s = 200};
    // With 100,000 failures, the standard deviation is about a third of a percent.
    CHECK(simulated(model, interval_s, 2e8) ==
          Approx(goodput(model, interval_s).share).epsilon(0.015));
  }
}

TEST_CASE("what is no failure model is refused") {
  CHECK_THROWS_AS(goodput({.between_failures_s = 0}, 1), ConfigError);
  CHECK_THROWS_AS(goodput({.between_failures_s = 10, .save_s = -1}, 1), ConfigError);
  CHECK_THROWS_AS(goodput({.between_failures_s = 10}, 0), ConfigError);
  CHECK_THROWS_AS(best_goodput({.between_failures_s = 10}), ConfigError);
}

}  // namespace shale::models
