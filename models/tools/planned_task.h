#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Training program whose runs `shale plan` plans: its options, and functions that use their values.
struct PlannedProgram {
  RunConfig& run;  // part of the options
  std::function<void(ConfigSpec& spec)> describe;
  std::function<void(int ranks)> resolve;
  std::function<std::unique_ptr<Task>()> make_task;  // for resolved options
};

// Returns the program of this name: "train_lm", whose options are stored in `language`,
// "train_image" or "train_diffusion", whose options the result owns.
PlannedProgram planned_program(std::string_view name, TrainConfig& language);

}  // namespace shale::models
