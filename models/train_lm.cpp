// Trains a language model, one MPI rank per device: mpirun -np 4 --bind-to none train_lm --data
// my.txt
#include <memory>

#include "shale/base/cpu_affinity.h"
#include "shale/base/host_memory.h"
#include "shale/base/log.h"
#include "shale/models/language/config.h"
#include "shale/models/language/pipe_data.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/plan/remedies.h"
#include "shale/models/training/program.h"

namespace {

using namespace shale;

// Returns options with which the run would fit; empty: unknown. Plans the run for less than half a
// minute, while the other ranks wait.
std::string advice(models::TrainConfig config, const DeviceOutOfMemory& error,
                   const comm::World& world) {
  constexpr double kMostSeconds = 10;
  models::RunConfig& run = config.run;
  const bool has_host_memory = run.offload != models::OffloadKind::kNone || run.offload_activations;
  if (error.budget_bytes() == 0 && has_host_memory) return {};  // host memory may have run out
  run.threads = resolve_threads(run.threads, world.local_size());
  if (run.device == "auto") run.device = to_string(error.device().type);
  int64_t limit = error.budget_bytes() > 0 ? error.budget_bytes() : error.held_bytes();
  if (error.budget_bytes() == 0 && error.device().type == DeviceType::kCpu) {
    limit += available_host_memory().value_or(0) / world.local_size();
  }
  try {
    return models::describe(
        models::find_remedies(config, world.rank(), world.size(), limit, kMostSeconds), limit);
  } catch (const std::exception& failure) {  // ignored, so that the original error is reported
    log_info("cannot advise on memory: ", failure.what());
    return {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  models::TrainConfig config;
  int ranks = 1;
  ConfigSpec spec("train_lm", "trains a language model on one or more ranks");
  models::describe(spec, config);
  return models::run_training_program(
      argc, argv,
      {.name = "train_lm",
       .spec = spec,
       .run = config.run,
       .resolve =
           [&config, &ranks](int all) {
             ranks = all;
             models::resolve(config, all);
           },
       .make_task =
           [&config, &ranks] {
             models::copy_piped_data(config, ranks);
             return models::make_language_task(config);
           },
       .advice = [&config](const DeviceOutOfMemory& error,
                           const comm::World& world) { return advice(config, error, world); }});
}
