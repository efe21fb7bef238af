#pragma once

#include <functional>
#include <memory>
#include <string>

#include "shale/base/config.h"
#include "shale/comm/world.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"
#include "shale/models/training/trainer.h"
#include "shale/models/training/watch_reading.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace shale::models {

// What distinguishes a training program from other training programs.
struct TrainingProgram {
  const char* name;
  ConfigSpec& spec;  // description of all options
  RunConfig& run;    // the options of `spec` that all programs have
  // Fills in derived options; calls resolve(RunConfig&, int ranks).
  std::function<void(int ranks)> resolve;
  // Makes the task for resolved options. Collective.
  std::function<std::unique_ptr<Task>(const DataReading&)> make_task;
  // Throws if the run cannot work, before its model has memory; null: no check. Collective.
  TrainerCheck check = nullptr;
  // Returns options that would fit the memory, for the end of the error message; null: no
  // suggestions.
  std::function<std::string(const Task&, const DeviceOutOfMemory&, const comm::World&)> advice =
      nullptr;
};

// Main function of a training program, with one MPI rank per device: reads the options, monitors
// the startup, compares the ranks, and trains. Returns the exit code.
int run_training_program(int argc, char** argv, const TrainingProgram& program);

}  // namespace shale::models
