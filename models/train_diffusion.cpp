// Trains a diffusion transformer, one MPI rank per device: mpirun -np 4 --bind-to none
// train_diffusion --data shapes --ema 0.999
#include <memory>

#include "shale/models/diffusion/config.h"
#include "shale/models/diffusion/task.h"
#include "shale/models/plan/memory_check.h"
#include "shale/models/training/program.h"

int main(int argc, char** argv) {
  using namespace shale;
  models::DiffusionTrainConfig config;
  ConfigSpec spec("train_diffusion", "trains a diffusion transformer on one or more ranks");
  models::describe(spec, config);
  models::TrainingProgram program{
      .name = "train_diffusion",
      .spec = spec,
      .run = config.run,
      .resolve = [&config](int ranks) { models::resolve(config, ranks); },
      .make_task =
          [&config](const models::DataReading& reading) {
            return std::make_unique<models::DiffusionTask>(config, nullptr, reading);
          }};
  models::plan_memory(program);
  return models::run_training_program(argc, argv, program);
}
