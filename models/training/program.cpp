#include "shale/models/training/program.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "shale/base/failure.h"
#include "shale/base/log.h"
#include "shale/comm/hosts/start_watch.h"
#include "shale/comm/world.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/recipes.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/training/trainer.h"

namespace shale::models {
namespace {

// Parsed command line. It is parsed before the World exists, but its errors are thrown in the
// World, which reports them.
struct CommandLine {
  ParseResult parsed;
  std::exception_ptr error;

  CommandLine(ConfigSpec& spec, int argc, char** argv) {
    try {
      parsed = parse_with_recipe(spec, argc, argv);
    } catch (...) {
      error = std::current_exception();
    }
  }
};

int train(const TrainingProgram& program, const CommandLine& command, comm::World& world,
          std::unique_ptr<comm::StartWatch> start) {
  if (command.error != nullptr) std::rethrow_exception(command.error);
  if (command.parsed.should_exit) {
    if (world.rank() == 0) std::fputs(command.parsed.output.c_str(), stdout);
    return 0;
  }
  const RunConfig& run = program.run;
  set_process_log({.quiet = run.quiet});
  program.resolve(world.size());
  start.reset();  // the World has started: from now on the ranks monitor each other
  auto group = world.group({.name = "start", .timeout_s = run.timeout_s});
  check_ranks(*group, program.spec.to_json());
  check_room_for_mpi(world);
  const std::unique_ptr<Task> task = program.make_task(read_once_per_host(*group));
  group.reset();
  resolve_steps(program.run, program.spec, task->samples_per_epoch(), world.size());
  try {
    return static_cast<int>(Trainer(run, program.spec, *task, world, program.check).run());
  } catch (const DeviceOutOfMemory& error) {
    const std::string advice =
        program.advice == nullptr ? std::string() : program.advice(*task, error, world);
    if (advice.empty()) throw;
    throw OutOfMemoryError(cat(error.what(), "\n  ", advice));
  }
}

}  // namespace

int run_training_program(int argc, char** argv, const TrainingProgram& program) {
  std::optional<StopSignals> stop_signals;  // from here on signals no longer interrupt a step
  try {
    stop_signals.emplace();
  } catch (const std::system_error&) {
    const Failure failure = failure_of(std::current_exception());
    print_error(failure.message);
    return static_cast<int>(failure.code);
  }
  RecipeChoice recipe;
  describe(program.spec, recipe, program.name);
  const CommandLine command(program.spec, argc, argv);
  // Maximum wait before the first step is done. It is longer than for other steps, because programs
  // are loaded, data is read and connections are made.
  const double timeout_s = program.run.timeout_s;
  const double start_s = std::max(timeout_s, std::min(10 * timeout_s, 600.));
  auto start = std::make_unique<comm::StartWatch>(start_s);
  const auto body = [&](comm::World& world) {
    return train(program, command, world, std::move(start));
  };
  return comm::run(argc, argv, body,
                   {.timeout_s = timeout_s,
                    .start_s = start_s,
                    .ending = [] { return StopSignals::received() != 0; },
                    .reports = program.run.out + "/failure"});
}

}  // namespace shale::models
