#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// A training program, whose runs `shale plan` plans: its options, without their values.
struct PlannedProgram {
  RunConfig& run;  // part of the options
  std::function<void(ConfigSpec& spec)> describe;
  std::function<void(int ranks)> resolve;
  std::function<std::unique_ptr<Task>()> make_task;  // for resolved options
};

// name: "train_lm", whose options are `language`, "train_image" or "train_diffusion", which have
// their own.
PlannedProgram planned_program(std::string_view name, TrainConfig& language);

}  // namespace shale::models
