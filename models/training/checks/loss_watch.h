#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shale::models {

// Detects a diverging run by its training loss.
class LossWatch {
 public:
  // Call it with the loss and the learning rate of each step. Returns a warning, at most once, when
  // the loss is above that of the first step and above ten times the lowest running mean; otherwise
  // an empty string.
  std::string look(int64_t step, double loss, double lr);

 private:
  std::optional<double> first_;
  double mean_ = 0;    // running mean, over about 10 steps
  double lowest_ = 0;  // lowest running mean so far
  bool has_warned_ = false;
};

}  // namespace shale::models
