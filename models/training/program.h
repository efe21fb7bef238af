#pragma once

#include <functional>
#include <memory>
#include <string>

#include "shale/base/config.h"
#include "shale/comm/world.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace shale::models {

// What tells one training program from another.
struct TrainingProgram {
  ConfigSpec& spec;  // describes all options
  RunConfig& run;    // is among them
  // Fills in what is derived, as resolve(RunConfig&, int ranks), which it calls.
  std::function<void(int ranks)> resolve;
  std::function<std::unique_ptr<Task>()> make_task;  // of the resolved options
  // What would have fitted, for the end of the error; null: nobody knows.
  std::function<std::string(const DeviceOutOfMemory&, const comm::World&)> advice = nullptr;
};

// The main function of a training program, one MPI rank per device: reads the options, watches over
// the start, checks the ranks, and trains. Returns the exit code.
int run_training_program(int argc, char** argv, const TrainingProgram& program);

}  // namespace shale::models
