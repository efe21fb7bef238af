#pragma once

#include <memory>
#include <string>
#include <utility>

#include "shale/comm/world.h"
#include "shale/models/plan/remedies.h"
#include "shale/models/training/program.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace shale::models {

// Plans the run on every rank, and adds up what the ranks of each host take of its memory: device
// memory of CPUs and of the emulator, offloaded state, and batches. Throws OutOfMemoryError, on all
// ranks and with options that would fit, if that is more than the host and its control groups have
// available; the kernel would end a process later. Memory of GPUs is not checked. `opened` is the
// run's own task. Collective.
void check_host_memory(PlannedProgram program, Task& opened, comm::World& world);

// Suggests options with which a run that failed would fit; empty: unknown. Plans the run, while the
// other ranks wait for less than half a minute.
std::string memory_advice(PlannedProgram program, const DeviceOutOfMemory& error,
                          const comm::World& world);

// Makes a training program check the memory of a run before its first step, and suggest options
// when memory runs out. `config` outlives the program. make_task: makes another task for options,
// from the one that the run has opened, without reading its data again.
template <typename Config, typename MakeTask>
void plan_memory(TrainingProgram& program, const Config& config, MakeTask make_task) {
  const auto planned = [&config, make_task](Task& opened) {
    return PlannedProgram{
        .run = config.run,
        .resolve =
            [config = Config(config)](RunConfig& run, int ranks) mutable {
              config.run = run;
              resolve(config, ranks);
              run = config.run;
            },
        .make_task =
            [config = Config(config), make_task, &opened](const RunConfig& run) mutable {
              config.run = run;
              return make_task(config, opened);
            }};
  };
  program.check = [planned](Task& opened, comm::World& world) {
    check_host_memory(planned(opened), opened, world);
  };
  program.advice = [planned](Task& opened, const DeviceOutOfMemory& error,
                             const comm::World& world) {
    return memory_advice(planned(opened), error, world);
  };
}

}  // namespace shale::models
