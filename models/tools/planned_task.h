#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Training program whose runs `shale plan` plans: its options, and functions that use the current
// values of the options.
struct PlannedProgram {
  RunConfig& run;  // part of the options
  std::function<void(ConfigSpec& spec)> describe;
  std::function<void(int ranks)> resolve;
  std::function<std::unique_ptr<Task>()> make_task;  // `run` must be resolved
};

// Returns the program with this name. For "train_lm", options are stored in `language`. For
// "train_image" and "train_diffusion", the result owns them.
PlannedProgram planned_program(std::string_view name, TrainConfig& language);

}  // namespace shale::models
