// Trains a language model, one MPI rank per device: mpirun -np 4 --bind-to none train_lm --data
// my.txt
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/start_watch.h"
#include "shale/comm/world.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/models/plan/remedies.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/training/trainer.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace {

using namespace shale;

// What the command line asks for. Read before there is a World, which reports what is wrong.
struct CommandLine {
  models::TrainConfig config;
  ConfigSpec spec{"train_lm", "trains a language model on one or more ranks"};
  ParseResult parsed;
  std::exception_ptr error;

  CommandLine(int argc, char** argv) {
    models::describe(spec, config);
    try {
      parsed = parse_config(spec, argc, argv);
    } catch (...) {
      error = std::current_exception();
    }
  }
};

// What would have made the run fit, in words; empty where nobody knows. Plans it again, for which
// the other ranks wait less than half a minute.
std::string advice(models::TrainConfig config, const DeviceOutOfMemory& error,
                   const comm::World& world) {
  constexpr double kMostSeconds = 10;
  models::RunConfig& run = config.run;
  const bool has_host_memory = run.offload != models::OffloadKind::kNone || run.offload_activations;
  if (error.budget_bytes() == 0 && has_host_memory) return {};  // it may have been the host's
  run.threads = resolve_threads(run.threads, world.local_size());
  if (run.device == "auto") run.device = to_string(error.device().type);
  const int64_t limit = error.budget_bytes() > 0 ? error.budget_bytes() : error.held_bytes();
  try {
    return models::describe(
        models::find_remedies(config, world.rank(), world.size(), limit, kMostSeconds), limit);
  } catch (const std::exception& failure) {  // the first error counts
    log_info("no advice about memory: ", failure.what());
    return {};
  }
}

int train(CommandLine& command, comm::World& world, std::unique_ptr<comm::StartWatch> start) {
  if (command.error != nullptr) std::rethrow_exception(command.error);
  if (command.parsed.should_exit) {
    if (world.rank() == 0) std::fputs(command.parsed.output.c_str(), stdout);
    return 0;
  }
  const models::RunConfig& run = command.config.run;
  set_process_log({.quiet = run.quiet});
  models::resolve(command.config, world.size());
  start.reset();  // the ranks watch each other now
  models::check_ranks(*world.group({.name = "start", .timeout_s = run.timeout_s}),
                      command.spec.to_json());
  models::check_room_for_mpi(world);
  models::LanguageTask task(command.config);
  try {
    return static_cast<int>(models::Trainer(run, command.spec, task, world).run());
  } catch (const DeviceOutOfMemory& error) {
    throw OutOfMemoryError(cat(error.what(), advice(command.config, error, world)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<models::StopSignals> stop_signals;  // from here on they end no step halfway
  try {
    stop_signals.emplace();
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "error: a thread could not be made: %s\n", error.what());
    return static_cast<int>(ExitCode::kOutOfMemory);
  }
  CommandLine command(argc, argv);
  auto start = std::make_unique<comm::StartWatch>(command.config.run.timeout_s);
  const auto body = [&](comm::World& world) {
    try {
      return train(command, world, std::move(start));
    } catch (const std::system_error& error) {
      // A thread that cannot be made: the user may have no more of them, or of their memory.
      if (error.code() != std::errc::resource_unavailable_try_again) throw;
      throw OutOfMemoryError(cat("a thread could not be made: ", error.what(),
                                 "; ulimit -v and ulimit -u bound memory and threads"));
    }
  };
  return comm::run(argc, argv, body, {.timeout_s = command.config.run.timeout_s});
}
