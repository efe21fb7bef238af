// Trains an image classifier, one MPI rank per device: mpirun -np 4 --bind-to none train_image
// --data shapes
#include <memory>

#include "shale/models/image/config.h"
#include "shale/models/image/task.h"
#include "shale/models/plan/memory_check.h"
#include "shale/models/training/program.h"

namespace {

// Makes a task of the same model with the data of the run's own.
std::unique_ptr<shale::models::Task> planned_task(shale::models::ImageTrainConfig config,
                                                  shale::models::Task& opened) {
  config.image.init.clear();
  const auto& own = dynamic_cast<const shale::models::ImageTask&>(opened);
  return std::make_unique<shale::models::ImageTask>(config, own.data());
}

}  // namespace

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
      .make_task = [&config] { return std::make_unique<models::ImageTask>(config); }};
  models::plan_memory(program, config, planned_task);
  return models::run_training_program(argc, argv, program);
}
