// shale run and shale train: start a training command, and restart it when it fails.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/failure.h"
#include "shale/base/host_memory.h"
#include "shale/base/parse.h"
#include "shale/comm/hosts/launcher.h"
#include "shale/comm/world.h"
#include "shale/models/tools/join/handshake.h"
#include "shale/models/tools/join/head.h"
#include "shale/models/tools/supervision/child_process.h"
#include "shale/models/tools/supervision/launch_command.h"
#include "shale/models/tools/supervision/live_hosts.h"
#include "shale/models/tools/supervision/restart_policy.h"
#include "shale/models/tools/supervision/say.h"
#include "shale/models/tools/supervision/supervised_process.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/checks/disk_room.h"
#include "shale/models/training/output_lock.h"
#include "shale/models/training/report/run_status.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::models {
namespace {

struct RunOptions {
  RestartPolicy::Options policy;
  bool elastic = false;
  double probe_timeout_s = 10;
  // Number of hosts that join with shale join; in shale train also names of hosts.
  std::string nodes;
  std::string listen;
  double join_timeout_s = 600;
};

// Returns status.json of the command's run; nothing if it has none.
std::optional<RunStatus> status_of(const LaunchCommand& command) {
  if (!command.has_program()) return {};
  try {
    return read_run_status(command.out_folder());
  } catch (const Error&) {
    return {};
  }
}

using FileTime = std::filesystem::file_time_type;

// Returns the time at which the run's status.json was written. Returns the earliest possible time
// if there is none.
FileTime status_time(const LaunchCommand& command) {
  std::error_code error;
  try {
    const std::filesystem::path out = command.out_folder();
    const FileTime time = std::filesystem::last_write_time(out / "status.json", error);
    return error ? FileTime::min() : time;
  } catch (const Error&) {
    return FileTime::min();
  }
}

// Returns a run's exit code, given the code of its command. A launcher may return a code of its
// own: mpirun after a SIGTERM, MPICH when ranks end with different codes. Then the result is the
// code in status.json, if the run wrote this file after `before`, and if the code is neither
// success nor one that leads to a restart.
int code_of_run(int code, const LaunchCommand& command, FileTime before) {
  if (is_own_code(code) || !command.has_program() || status_time(command) <= before) return code;
  const std::optional<RunStatus> status = status_of(command);
  const int told = status ? status->exit_code.value_or(code) : code;
  const Ending ending = ending_of(told);
  return ending == Ending::kDone || ending == Ending::kRestart ? code : told;
}

// Updates status.json for a run that was killed before it could do so itself. Does nothing while
// another run writes to the folder.
void tell_of_killed_run(const LaunchCommand& command, int code, const std::string& what) {
  if (code == 0 || !command.has_program()) return;
  try {
    RunStatus status = read_run_status(command.out_folder());
    if (status.state != RunState::kRunning) return;
    const OutputLock lock(command.out_folder(), {.patience_s = 0});
    status.state = RunState::kFailed;
    status.exit_code = code;
    status.message = cat("ended with ", what, " before it could report why");
    write_run_status(command.out_folder(), status);
  } catch (const Error& error) {
    // There is no run, or its folder is in use. Only a disk error is worth a message.
    if (error.code() == ExitCode::kDisk) say(cat("status.json: ", error.what()));
  }
}

void check_room_for_mpi() {
  const int64_t wanted_bytes = room_for_mpi(cpu_counts().node);
  for (const MpiFolder& folder : mpi_folders()) {
    // If the folder is missing, shale doctor explains that.
    const auto room = disk_room(folder.path);
    if (!room || room->free_bytes >= wanted_bytes) continue;
    throw DiskError(cat("shale run: ", folder.path, " has ",
                        format_bytes(static_cast<double>(room->free_bytes)), " free, expected ",
                        format_bytes(static_cast<double>(wanted_bytes)), " for mpirun's files; ",
                        folder.if_full));
  }
}

std::string text_of(const LaunchCommand& command) {
  std::string text;
  for (const std::string& argument : command.arguments()) {
    text += cat(text.empty() ? "" : " ", argument);
  }
  return text;
}

// Returns the head of a run with --nodes: a number, or "env" for `shale join -- ...`. Returns null
// if no nodes will join.
std::unique_ptr<Head> make_head(const RunOptions& options) {
  Head::Options head{.listen = options.listen, .limit_s = options.join_timeout_s};
  if (options.nodes == "env") {
    const auto place = torch_place([](const char* name) { return std::getenv(name); });
    if (!place) throw ConfigError("--nodes env needs MASTER_ADDR, RANK and WORLD_SIZE to be set");
    head.count = place->processes;
    head.processes = true;
    if (head.listen.empty()) head.listen = cat(":", place->port);
  } else if (const auto count = parse_int(options.nodes); count && *count > 0) {
    head.count = *count;
  } else {
    return nullptr;
  }
  if (options.elastic) {
    throw ConfigError(cat("--elastic --nodes ", options.nodes,
                          ": a run on nodes that join waits for all of them; leave out --elastic"));
  }
  if (head.listen.empty()) head.listen = ":29500";
  return std::make_unique<Head>(head);
}

// Runs and restarts the command. slots: ranks on each node of the head; 0: one per GPU or, without
// GPUs, per CPU.
int supervise(const LaunchCommand& given, const RunOptions& options, SupervisedProcess& process,
              Head* head = nullptr, int64_t slots = 0) {
  RestartPolicy policy(options.policy);
  LiveHosts live_hosts(options.probe_timeout_s);
  for (int64_t restarts = 0;; ++restarts) {
    LaunchCommand command = given;
    if (restarts > 0) command.resume();
    if (head != nullptr) {
      head->wait_for_nodes(process);
      if (process.stop_requested()) return static_cast<int>(ExitCode::kInterrupted);
      head->write_hosts(slots);
    }
    if (options.elastic) live_hosts.drop_others(command);
    check_room_for_mpi();
    if (restarts > 0) say(cat("starting again (restart ", restarts, "): ", text_of(command)));
    const FileTime before = status_time(command);
    const int64_t oom_before = oom_kills();
    const int code =
        code_of_run(process.run(command.arguments(), command.program_name(),
                                [head] { return head != nullptr && head->has_lost_node(); }),
                    command, before);
    const std::string what = cat(
        describe_exit(code),
        oom_kills() > oom_before ? ", after the kernel killed a process here (out of memory)" : "");
    tell_of_killed_run(command, code, what);
    const RunStatus status = status_of(command).value_or(RunStatus{.step = -1});
    if (code != 0) live_hosts.note_broken_gpus(status.message);
    const Ending ending = ending_of(code);
    if (ending == Ending::kDone) return code;
    const bool is_over = ending == Ending::kPreempted || ending == Ending::kHopeless;
    if (process.stop_requested() || is_over) {
      say(cat("the run ended with ", what));
      return code;
    }
    const int64_t saved = status.checkpoint_step.value_or(-1);
    const auto decision =
        policy.failed({.ending = ending, .saved_step = saved, .step = status.step});
    const std::string at = saved < 0 ? std::string("before a first checkpoint")
                                     : cat("after the checkpoint of step ", saved);
    if (!decision.restart) {
      say(cat("the run failed ", at, " with ", what, ", ", decision.without_progress,
              " restarts brought no progress; giving up"));
      return code;
    }
    say(cat("the run failed ", at, " with ", what, "; starting again in ", decision.delay_s, " s"));
    process.sleep(decision.delay_s);
    if (process.stop_requested()) return code;
  }
}

// Runs `body`. With --nodes N, makes a head for it, which tells the nodes the exit code.
int with_head(const RunOptions& options, const std::function<int(Head*)>& body) {
  const std::unique_ptr<Head> head = make_head(options);
  try {
    const int code = body(head.get());
    if (head) head->finish(code);
    return code;
  } catch (...) {
    if (head) head->finish(static_cast<int>(failure_of(std::current_exception()).code));
    throw;
  }
}

void describe_supervision(ConfigSpec& spec, RunOptions& options) {
  spec.add("max-restarts", options.policy.max_restarts,
           "maximum restarts in a row without a new checkpoint; after disk errors, 4 times this "
           "number",
           {.min = 0});
  spec.add("delay", options.policy.first_delay_s,
           "delay of the first restart without progress; doubles each time, up to 1 minute (10 "
           "minutes after disk errors)",
           {.min = 0, .help = {.metavar = "SECONDS", .unit = "s"}});
  spec.add("elastic", options.elastic,
           "before each start, ping the hosts of mpirun and use only those that answer, with fewer "
           "ranks if necessary");
  spec.add("probe-timeout", options.probe_timeout_s,
           "time to wait for a host's answer with --elastic",
           {.min = 0, .exclude_min = true, .help = {.metavar = "SECONDS", .unit = "s"}});
  spec.add("listen", options.listen, "TCP address at which --nodes N waits for shale join",
           {.help = {.metavar = "[HOST]:PORT", .default_text = ":29500, on all addresses"}});
  spec.add("join-timeout", options.join_timeout_s,
           "time to wait until the other nodes of --nodes N have joined",
           {.min = 0, .exclude_min = true, .help = {.metavar = "SECONDS", .unit = "s"}});
}

void describe(ConfigSpec& spec, RunOptions& options) {
  spec.example("shale run -- mpirun -np 4 --bind-to none train_lm --data my.txt --save-every 100");
  spec.example(
      "shale run --elastic -- mpirun -np 16 --hostfile hosts train_lm --data my.txt --save-every "
      "100");
  spec.example("shale run --nodes 2 -- mpirun --bind-to none train_lm --data my.bin");
  spec.section("Flags (before --; the command follows it)");
  spec.add("nodes", options.nodes,
           "number of hosts, including this one; start shale join on the other hosts (no ssh)",
           {.help = {.metavar = "N", .default_text = "as the command says"}});
  describe_supervision(spec, options);
}

// ---- shale train ----

struct TrainOptions {
  RunOptions run;
  std::string what;   // program to run, for example "lm"
  int64_t ranks = 0;  // ranks per node; 0: one, or one per GPU of `gpus`
  std::string gpus;   // "all" or a number; empty: not given
};

void describe(ConfigSpec& spec, TrainOptions& options) {
  spec.example("shale train lm --data my.txt --ranks 2");
  spec.example("shale train image --data flowers/ --gpus all");
  spec.example("shale train lm --nodes a,b --gpus 8 --data corpus/ --save-every 500");
  spec.add_positional("what", options.what, "lm, image or diffusion; see shale train lm --help",
                      {.required = true});
  spec.section("Flags (the others are those of train_lm, train_image or train_diffusion)");
  spec.add("ranks", options.ranks, "number of processes on each node",
           {.min = 1, .max = 1 << 16, .help = {.default_text = "1, or --gpus"}});
  spec.add("gpus", options.gpus, "train on this many GPUs of each node, with a rank for each",
           {.help = {.metavar = "N|all", .default_text = "by --device"}});
  spec.add("nodes", options.run.nodes,
           "hosts to reach by ssh, or the number of hosts including this one, where the other "
           "hosts start shale join; this program must have the same path on all hosts",
           {.help = {.metavar = "HOST,...|N", .default_text = "this host"}});
  describe_supervision(spec, options.run);
}

// Returns the number of ranks on all nodes of a head.
int64_t ranks_on(const std::vector<Head::Node>& nodes, const TrainOptions& options) {
  if (options.gpus.empty()) return std::max<int64_t>(options.ranks, 1) * std::ssize(nodes);
  int64_t ranks = 0;
  for (const Head::Node& node : nodes) {
    const int64_t least = options.gpus == "all" ? 1 : parse_int(options.gpus).value_or(1);
    if (node.gpus < least) {
      throw UnavailableError(cat("--gpus ", options.gpus, ": found ", node.gpus, " GPUs on node ",
                                 node.address, "; run shale doctor on that node to see why"));
    }
    ranks += options.gpus == "all" ? node.gpus : least;
  }
  return ranks;
}

int64_t ranks_per_node(const TrainOptions& options) {
  if (options.gpus.empty()) return std::max<int64_t>(options.ranks, 1);
  const GpuList gpus = visible_gpus();
  const auto found = std::ssize(gpus.ids);
  const auto wanted = options.gpus == "all" ? found : parse_int(options.gpus).value_or(0);
  if (options.gpus != "all" && wanted < 1) {
    throw ConfigError(
        cat("--gpus: expected all or a number from 1, found '", excerpt(options.gpus), "'"));
  }
  if (options.ranks > 0 && options.ranks != wanted) {
    throw ConfigError(cat("--ranks ", options.ranks, " with --gpus ", options.gpus,
                          ": each GPU has one rank; leave out --ranks"));
  }
  if (found == 0 || wanted > found) {
    throw UnavailableError(cat("--gpus ", options.gpus, ": found ", found, " GPUs on this host",
                               gpus.why_none.empty() ? "" : cat(" (", gpus.why_none, ")"),
                               "; use shale doctor to see why, or --ranks N to train on CPUs"));
  }
  return wanted;
}

std::string program_path(const std::string& what) {
  if (what != "lm" && what != "image" && what != "diffusion") {
    throw ConfigError(cat("shale train: expected lm, image or diffusion, found ",
                          what.empty() ? "nothing" : cat("'", excerpt(what), "'"),
                          "; for example shale train lm --data my.txt --ranks 2"));
  }
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / cat("train_", what)).string();
}

// Returns how the MPI of this build starts ranks. Throws UnavailableError if its launcher is
// missing.
const comm::RankStarter& starter() {
  const comm::RankStarter& mpi = comm::rank_starter(comm::mpi_version());
  const ChildResult found = run_command({std::string(mpi.program), "--version"}, /*timeout_s=*/30);
  if (found.code == 0 && found.output.find(mpi.version) != found.output.npos) return mpi;
  throw UnavailableError(cat("shale train: expected ", mpi.program, " of ", mpi.mpi,
                             found.code == 0 ? ", found another one" : ", found none", "; install ",
                             mpi.install, ", or add its folder to PATH"));
}

// Returns the part of the command that starts the ranks; empty for one rank on this host. each:
// ranks per host.
std::vector<std::string> launcher_of(const TrainOptions& options, int64_t each, Head* head) {
  std::string hosts;
  int64_t nodes = 0;
  std::istringstream list(head == nullptr ? options.run.nodes : "");
  for (std::string node; std::getline(list, node, ','); ++nodes) {
    hosts += cat(hosts.empty() ? "" : ",", node, ":", each);
  }
  if (each == 1 && nodes == 0 && head == nullptr) return {};
  const comm::RankStarter& mpi = starter();
  std::vector<std::string> words = {std::string(mpi.program)};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add(mpi.ranks);
  words.push_back(
      cat(head != nullptr ? ranks_on(head->nodes(), options) : each * std::max<int64_t>(nodes, 1)));
  add(mpi.unbound);
  if (nodes == 0 && head == nullptr)
    add(mpi.many);  // allows more ranks than cores; the ranks warn about it
  if (nodes > 0) {
    add(mpi.hosts);
    words.push_back(hosts);
  }
  if (geteuid() == 0) add(mpi.as_root);
  return words;
}

// Splits the arguments: returns those of shale train itself, and adds those of the program to
// `of_program`.
std::vector<const char*> split_flags(int argc, const char* const* argv,
                                     std::vector<std::string>& of_program) {
  constexpr std::string_view kWithValue[] = {"--ranks",        "--gpus",        "--nodes",
                                             "--max-restarts", "--delay",       "--probe-timeout",
                                             "--listen",       "--join-timeout"};
  std::vector<const char*> own = {argv[0], argv[1]};
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i], name = word.substr(0, word.find('='));
    const bool has_value = std::ranges::find(kWithValue, name) != std::end(kWithValue);
    if (has_value || name == "--elastic") {
      own.push_back(argv[i]);
      if (has_value && name == word && i + 1 < argc) own.push_back(argv[++i]);
    } else {
      of_program.emplace_back(word);
    }
  }
  return own;
}

}  // namespace

int run_train(int argc, const char* const* argv) {
  constexpr std::string_view kHelp[] = {"--help", "-h", "--version", "--print-config"};
  const std::string what = argc > 1 ? argv[1] : "";
  const bool asks_here = std::ranges::find(kHelp, what) != std::end(kHelp);
  std::vector<std::string> words = {asks_here ? "" : program_path(what)};
  TrainOptions options;
  ConfigSpec spec("shale train",
                  "trains a model on one or more ranks, and restarts it when it fails");
  describe(spec, options);
  std::vector<const char*> own(argv, argv + argc);
  if (!asks_here) own = split_flags(argc, argv, words);
  if (parse_or_print(spec, static_cast<int>(own.size()), own.data())) return 0;
  if (std::ranges::find_first_of(words, kHelp) != words.end()) {
    return SupervisedProcess().run(words);
  }
  if (!options.gpus.empty()) words.insert(words.end(), {"--device", "cuda"});
  if (options.run.elastic && options.run.nodes.empty()) {
    throw ConfigError("--elastic: expected --nodes with the hosts to choose from");
  }
  const int64_t each = ranks_per_node(options);
  SupervisedProcess process;
  return with_head(options.run, [&](Head* head) {
    if (head != nullptr) {
      head->wait_for_nodes(process, [&](const auto& nodes) { ranks_on(nodes, options); });
    }
    if (process.stop_requested()) return static_cast<int>(ExitCode::kInterrupted);
    const std::vector<std::string> launcher = launcher_of(options, each, head);
    words.insert(words.begin(), launcher.begin(), launcher.end());
    const int64_t slots = options.gpus == "all" ? 0 : each;
    return supervise(LaunchCommand(std::move(words)), options.run, process, head, slots);
  });
}

int run_run(int argc, const char* const* argv) {
  const char* const* const end = argv + argc;
  const char* const* const dashes = std::find(argv + 1, end, std::string_view("--"));
  RunOptions options;
  ConfigSpec spec("shale run",
                  "starts a training command, and restarts it with --resume auto when it fails");
  describe(spec, options);
  constexpr const char* kNoCommand =
      "shale run: expected -- and a command: shale run -- mpirun -np 2 train_lm --data my.txt";
  if (dashes == end && argc > 1 && argv[1][0] != '-') throw ConfigError(kNoCommand);
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
  if (dashes == end) throw ConfigError(kNoCommand);
  const LaunchCommand command({dashes + 1, end});
  if (options.elastic && command.hosts().empty()) {
    throw ConfigError("--elastic: expected mpirun with --host or --hostfile in the command");
  }
  SupervisedProcess process;
  return with_head(options, [&](Head* head) {
    if (head == nullptr && !options.nodes.empty()) {
      throw ConfigError(
          cat("--nodes: expected a number from 1, found '", excerpt(options.nodes), "'"));
    }
    return supervise(command, options, process, head);
  });
}

}  // namespace shale::models
