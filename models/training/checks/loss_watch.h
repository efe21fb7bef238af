#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shale::models {

// Detects a diverging run by its training loss.
class LossWatch {
 public:
  // Call it with the loss of each step, and the step's learning rate. Returns a warning, once, when
  // the loss is above that of the first step and ten times the lowest running mean; else an empty
  // string.
  std::string look(int64_t step, double loss, double lr);

 private:
  std::optional<double> first_;
  double mean_ = 0;    // running mean, over about 10 steps
  double lowest_ = 0;  // running mean
  bool has_warned_ = false;
};

}  // namespace shale::models
