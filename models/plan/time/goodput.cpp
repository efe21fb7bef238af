#include "shale/models/plan/time/goodput.h"

#include <cmath>

#include "shale/base/error.h"

namespace shale::models {
namespace {

void check(const FailureModel& model) {
  const auto want = [](bool holds, const char* what, double found, const char* wanted) {
    if (!holds) throw ConfigError(cat("goodput: ", what, " is ", found, " s, expected ", wanted));
  };
  const double between = model.between_failures_s;
  want(std::isfinite(between) && between > 0, "the time between failures", between, "more than 0");
  for (const auto& [what, value] : {std::pair{"a save", model.save_s},
                                    {"writing a save", model.write_s},
                                    {"a restart", model.restart_s}}) {
    want(std::isfinite(value) && value >= 0, what, value, "0 or more");
  }
}

}  // namespace

Goodput goodput(const FailureModel& model, double interval_s) {
  check(model);
  if (!std::isfinite(interval_s) || interval_s <= 0) {
    throw ConfigError(cat("goodput: saves are ", interval_s, " s apart, expected more than 0"));
  }
  const double mean = model.between_failures_s;
  const double lost = std::exp((model.restart_s + model.write_s) / mean);
  const double tries = std::expm1((interval_s + model.save_s) / mean);
  return {.interval_s = interval_s, .share = interval_s / (mean * lost * tries)};
}

Goodput best_goodput(const FailureModel& model) {
  check(model);
  if (model.save_s == 0) {
    throw ConfigError("goodput: the time of a save is 0 s, expected more than 0");
  }
  const double mean = model.between_failures_s, save = model.save_s / mean;
  // x = 1 - exp(-(x + save)) has one positive root. Newton's method decreases from x = 1 to this
  // root, because the difference of the two sides is convex.
  double x = 1;
  for (int i = 0; i < 100; ++i) {
    const double rest = std::exp(-(x + save));
    const double step = (x - 1 + rest) / (1 - rest);
    x -= step;
    if (std::abs(step) <= 1e-12 * x) break;
  }
  return goodput(model, x * mean);
}

}  // namespace shale::models
