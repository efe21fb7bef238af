// Trains a language model, one MPI rank per device: mpirun -np 4 --bind-to none train_lm --data
// my.txt
#include <cstdio>

#include "shale/base/config.h"
#include "shale/base/log.h"
#include "shale/comm/world.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/training/trainer.h"

int main(int argc, char** argv) {
  using namespace shale;
  const models::StopSignals stop_signals;  // from here on they end no step halfway
  return comm::run(argc, argv, [&](comm::World& world) {
    models::TrainConfig config;
    ConfigSpec spec("train_lm", "trains a language model on one or more ranks");
    models::describe(spec, config);
    const ParseResult parsed = parse_config(spec, argc, argv);
    if (parsed.should_exit) {
      if (world.rank() == 0) std::fputs(parsed.output.c_str(), stdout);
      return 0;
    }
    set_process_log({.rank = world.rank(), .quiet = config.run.quiet});
    models::resolve(config, world.size());
    world.watch({.timeout_s = config.run.timeout_s});
    models::check_ranks(*world.group({.name = "start", .timeout_s = config.run.timeout_s}),
                        spec.to_json());
    models::check_room_for_mpi(world);
    models::LanguageTask task(config);
    return static_cast<int>(models::Trainer(config.run, spec, task, world).run());
  });
}
