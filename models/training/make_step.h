#pragma once

#include <memory>

#include "shale/models/training/parallel_setup.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Parts of a run from which its training step is made. All must outlive the step.
struct StepParts {
  const RunConfig& config;  // must be resolved
  Task& task;
  Context& context;
  // Result of make_parallel(); make_step() adds the groups of the pipeline stages.
  comm::Parallel& parallel;
  const BatchLayout& layout;
  offload::InlineStepper* stepper = nullptr;  // see StepOffload
};

// Throws ConfigError, with alternatives, if the device has no GEMMs for --dtype fp8 and its scales.
void check_fp8(const RunConfig& config, const Device& device);

// Makes the training step of the task's model as configured, with allocated and initialized
// parameters. Throws ConfigError for incompatible options, and UnavailableError if the run needs a
// library that cannot be loaded. Collective.
std::unique_ptr<TrainStep> make_step(const StepParts& parts, StepObserver* observer);

}  // namespace shale::models
