// shale run: starts a training command and starts it again when it fails.
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "models/child_process.h"
#include "models/launch_command.h"
#include "models/restart_policy.h"
#include "models/run_status.h"
#include "models/supervised_process.h"
#include "models/tools.h"
#include "runtime/base/config.h"
#include "runtime/base/error.h"

namespace shale::models {
namespace {

struct RunOptions {
  RestartPolicy::Options policy;
  bool elastic = false;
  double probe_timeout_s = 10;
};

void say(std::string_view text) {
  const std::string line = cat("shale run: ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Where the newest checkpoint of a run is; -1: there is none.
int64_t saved_step(const LaunchCommand& command) {
  try {
    return read_run_status(command.out_folder()).checkpoint_step.value_or(-1);
  } catch (const Error&) {
    return -1;  // a run that failed before it had one
  }
}

// mpirun returns 1 after a SIGTERM of its own, whatever the ranks did. What they did is on disk.
int code_of_run(int code, const LaunchCommand& command) {
  if (code != 1 || !command.has_program()) return code;
  try {
    const RunStatus status = read_run_status(command.out_folder());
    return status.state == RunState::kSaved ? static_cast<int>(ExitCode::kInterrupted) : code;
  } catch (const Error&) {
    return code;
  }
}

// Without room for its files mpirun can hang for minutes, and ranks die of SIGBUS.
void check_room_for_mpi() {
  constexpr uint64_t kNeeded = 16 << 20;
  const char* const chosen = std::getenv("TMPDIR");
  for (const std::string& folder :
       {std::string(chosen != nullptr && *chosen != '\0' ? chosen : "/tmp"),
        std::string("/dev/shm")}) {
    struct statvfs disk {};
    if (statvfs(folder.c_str(), &disk) != 0) continue;  // shale doctor says what that means
    const uint64_t free = disk.f_bavail * disk.f_frsize;
    if (free >= kNeeded) continue;
    throw DiskError(cat("shale run: ", folder, " has ", format_bytes(static_cast<double>(free)),
                        " free, want ", format_bytes(static_cast<double>(kNeeded)),
                        " for mpirun's files"));
  }
}

bool is_this_host(const std::string& name) {
  std::string own(256, '\0');
  if (gethostname(own.data(), own.size() - 1) != 0) own.clear();
  own.resize(own.find('\0'));
  return name == "localhost" || name.starts_with("127.") || name == own ||
         name == own.substr(0, own.find('.'));
}

bool answers(const LaunchCommand& command, const std::string& host, double timeout_s) {
  if (is_this_host(host)) return true;
  const std::string shell = command.remote_shell();
  std::vector<std::string> probe = {shell};
  if (std::filesystem::path(shell).filename() == "ssh") {
    probe.insert(probe.end(),
                 {"-o", "BatchMode=yes", "-o", cat("ConnectTimeout=", std::ceil(timeout_s / 2))});
  }
  probe.insert(probe.end(), {host, "true"});
  return run_command(probe, timeout_s).code == 0;
}

// Leaves the hosts that answer.
void drop_dead_hosts(LaunchCommand& command, const RunOptions& options) {
  const std::vector<LaunchHost> hosts = command.hosts();
  std::vector<LaunchHost> alive;
  for (const LaunchHost& host : hosts) {
    if (answers(command, host.name, options.probe_timeout_s)) {
      alive.push_back(host);
    } else {
      say(cat("host ", host.name, " does not answer; going on without it"));
    }
  }
  if (alive.empty()) throw UnavailableError("shale run: no host answers");
  if (alive.size() < hosts.size()) command.keep_hosts(alive);
}

std::string text_of(const LaunchCommand& command) {
  std::string text;
  for (const std::string& argument : command.arguments()) {
    text += cat(text.empty() ? "" : " ", argument);
  }
  return text;
}

int supervise(const LaunchCommand& given, const RunOptions& options) {
  SupervisedProcess process;
  RestartPolicy policy(options.policy);
  for (int64_t restarts = 0;; ++restarts) {
    LaunchCommand command = given;
    if (restarts > 0) command.resume();
    if (options.elastic) drop_dead_hosts(command, options);
    check_room_for_mpi();
    if (restarts > 0) say(cat("starting again (restart ", restarts, "): ", text_of(command)));
    const int code = code_of_run(process.run(command.arguments(), command.program_name()), command);
    const Ending ending = ending_of(code);
    if (ending == Ending::kDone) return code;
    if (process.stop_requested() || ending != Ending::kRestart) {
      say(cat("the run ended with ", describe_exit(code)));
      return code;
    }
    const int64_t step = saved_step(command);
    const auto decision = policy.failed_at(step);
    const std::string at = step < 0 ? std::string("before a first checkpoint")
                                    : cat("after the checkpoint of step ", step);
    if (!decision.restart) {
      say(cat("the run failed ", at, " with ", describe_exit(code), ", ", decision.without_progress,
              " restarts brought no progress; giving up"));
      return code;
    }
    say(cat("the run failed ", at, " with ", describe_exit(code), "; starting again in ",
            decision.delay_s, " s"));
    process.sleep(decision.delay_s);
    if (process.stop_requested()) return code;
  }
}

void describe(ConfigSpec& spec, RunOptions& options) {
  spec.example("shale run -- mpirun -np 4 --bind-to none train_lm --data my.txt --save-every 100");
  spec.example(
      "shale run --elastic -- mpirun -np 16 --hostfile hosts train_lm --data my.txt --save-every "
      "100");
  spec.section("Flags, before --; the command is what follows it");
  spec.add("max-restarts", options.policy.max_restarts,
           "give up after so many restarts in a row without a newer checkpoint", {.min = 0});
  spec.add("delay", options.policy.first_delay_s,
           "before the first restart without progress; doubles with each, up to a minute",
           {.min = 0, .help = {.metavar = "SECONDS", .unit = "s"}});
  spec.add("elastic", options.elastic,
           "before each start ask mpirun's hosts for a sign of life, and use those that answer; "
           "with fewer ranks, if need be");
  spec.add("probe-timeout", options.probe_timeout_s, "how long a host may take to answer",
           {.min = 0, .exclude_min = true, .help = {.metavar = "SECONDS", .unit = "s"}});
}

}  // namespace

int run_run(int argc, const char* const* argv) {
  const char* const* const end = argv + argc;
  const char* const* const dashes = std::find(argv + 1, end, std::string_view("--"));
  RunOptions options;
  ConfigSpec spec("shale run",
                  "starts a training command, and again with --resume auto when it fails");
  describe(spec, options);
  const ParseResult parsed = parse_config(spec, static_cast<int>(dashes - argv), argv);
  if (parsed.should_exit) {
    std::string output = parsed.output;
    const std::string_view flags = "run [FLAGS]";
    if (const size_t usage = output.find(flags); usage != output.npos) {
      output.insert(usage + flags.size(), " -- COMMAND");
    }
    std::fputs(output.c_str(), stdout);
    return 0;
  }
  if (dashes == end) {
    throw ConfigError(
        "shale run: expected -- and a command: shale run -- mpirun -np 2 train_lm "
        "--data my.txt");
  }
  const LaunchCommand command({dashes + 1, end});
  if (options.elastic && command.hosts().empty()) {
    throw ConfigError("--elastic: expected mpirun with --host or --hostfile in the command");
  }
  return supervise(command, options);
}

}  // namespace shale::models
