#pragma once

#include <memory>

#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/task.h"

namespace shale::models {

// What a run's training step is made of. All outlive it.
struct StepParts {
  const RunConfig& config;  // resolved
  Task& task;
  Context& context;
  comm::Parallel& parallel;  // make_parallel()'s; receives the groups of a pipeline's stages
  const BatchLayout& layout;
  offload::InlineStepper* stepper = nullptr;  // see StepOffload
};

// The step of the task's model as the options say: parameters have their memory and their initial
// values. Throws ConfigError for options that do not go together. Collective.
std::unique_ptr<TrainStep> make_step(const StepParts& parts, StepObserver* observer);

}  // namespace shale::models
