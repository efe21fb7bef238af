// Trains a language model, one MPI rank per device: mpirun -np 4 --bind-to none train_lm --data
// my.txt

#include "shale/models/language/config.h"
#include "shale/models/language/pipe_data.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/plan/memory_check.h"
#include "shale/models/training/program.h"

int main(int argc, char** argv) {
  using namespace shale;
  models::TrainConfig config;
  int ranks = 1;
  ConfigSpec spec("train_lm", "trains a language model on one or more ranks");
  models::describe(spec, config);
  models::TrainingProgram program{.name = "train_lm",
                                  .spec = spec,
                                  .run = config.run,
                                  .resolve =
                                      [&config, &ranks](int all) {
                                        ranks = all;
                                        models::resolve(config, all);
                                      },
                                  .make_task =
                                      [&config, &ranks](const models::DataReading& reading) {
                                        models::copy_piped_data(config, ranks);
                                        return models::make_language_task(config, reading);
                                      }};
  models::plan_memory(program);
  return models::run_training_program(argc, argv, program);
}
