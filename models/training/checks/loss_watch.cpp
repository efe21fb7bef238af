#include "shale/models/training/checks/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "shale/base/text.h"

namespace shale::models {

std::string LossWatch::look(int64_t step, double loss, double lr) {
  constexpr double kRise = 10, kWeight = 0.1;
  if (!std::isfinite(loss)) return {};  // the step was skipped
  if (!first_) {
    first_ = mean_ = lowest_ = loss;
    return {};
  }
  const bool diverges = loss > *first_ && loss > kRise * lowest_;
  mean_ += kWeight * (loss - mean_);
  lowest_ = std::min(lowest_, mean_);
  if (!diverges || has_warned_) return {};
  has_warned_ = true;
  return cat("step ", step, ": the loss is ", format_number(loss), ", more than ", kRise,
             " times its lowest mean of ", format_number(lowest_),
             ": training diverges; lower --lr (now ", format_number(lr),
             "), raise --warmup-steps, or check the data");
}

}  // namespace shale::models
