// Trains a language model, one MPI rank per device: mpirun -np 4 --bind-to none train_lm --data
// my.txt
#include <memory>

#include "shale/models/language/config.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/training/program.h"

int main(int argc, char** argv) {
  using namespace shale;
  models::TrainConfig config;
  ConfigSpec spec("train_lm", "trains a language model on one or more ranks");
  models::describe(spec, config);
  return models::run_training_program(
      argc, argv,
      {.spec = spec,
       .run = config.run,
       .resolve = [&config](int ranks) { models::resolve(config, ranks); },
       .make_task = [&config] { return models::make_language_task(config); }});
}
