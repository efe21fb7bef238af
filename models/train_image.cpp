// Trains an image classifier, one MPI rank per device: mpirun -np 4 --bind-to none train_image
// --data shapes
#include <memory>

#include "shale/models/image/config.h"
#include "shale/models/image/task.h"
#include "shale/models/plan/memory_check.h"
#include "shale/models/training/program.h"

int main(int argc, char** argv) {
  using namespace shale;
  models::ImageTrainConfig config;
  ConfigSpec spec("train_image", "trains an image classifier on one or more ranks");
  models::describe(spec, config);
  models::TrainingProgram program{
      .name = "train_image",
      .spec = spec,
      .run = config.run,
      .resolve = [&config](int ranks) { models::resolve(config, ranks); },
      .make_task =
          [&config](const models::DataReading& reading) {
            return std::make_unique<models::ImageTask>(config, nullptr, reading);
          }};
  models::plan_memory(program);
  return models::run_training_program(argc, argv, program);
}
