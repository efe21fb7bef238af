#include "shale/models/training/host_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/models/training/report/progress.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kPoll{20};
// Number of polls before a command that was asked to end is killed.
constexpr int kPatientPolls = 100;

// Prefixes of the variables that MPI launchers set for a rank. A program that the command starts
// must not have them, because it would act as a rank of this run.
constexpr std::array kOfRanks = {"OMPI_COMM_WORLD_",
                                 "OMPI_UNIVERSE_",
                                 "OMPI_MCA_orte_",
                                 "OMPI_MCA_ess",
                                 "OMPI_MCA_pmix",
                                 "PMIX_",
                                 "PMI_",
                                 "MPI_LOCAL",
                                 "HYDI_",
                                 "MV2_COMM_WORLD_",
                                 "JSM_NAMESPACE_",
                                 "PALS_",
                                 "FLUX_TASK_",
                                 "FLUX_JOB_",
                                 "SLURM_PROCID=",
                                 "SLURM_LOCALID=",
                                 "SLURM_STEP"};

// Adds the variables of this process, except those of ranks and those that the list has already.
void add_environment(std::vector<std::string>& variables) {
  const std::vector<std::string> given = variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable, name = text.substr(0, text.find('=') + 1);
    const auto is_of = [&](std::string_view begin) { return text.starts_with(begin); };
    const auto is_given = [&](std::string_view other) { return other.starts_with(name); };
    if (std::ranges::any_of(kOfRanks, is_of) || std::ranges::any_of(given, is_given)) continue;
    variables.emplace_back(text);
  }
}

std::string exit_text(int status) {
  if (WIFSIGNALED(status)) return cat("killed by signal ", WTERMSIG(status));
  return cat("exit code ", WEXITSTATUS(status));
}

// Starts a shell in a new process group, with default signal handling and no blocked signals,
// because ranks block the signals that ask them to stop. Returns 0 or an errno.
int spawn(const std::string& command, const std::string& log,
          const std::vector<std::string>& environment, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const int flags = O_WRONLY | O_CREAT | O_APPEND;
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), flags, 0666);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> variables;
  for (const std::string& variable : environment) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  variables.push_back(nullptr);
  std::string words[] = {"sh", "-c", command};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  const int error = posix_spawn(&pid, "/bin/sh", &files, &attributes, arguments, variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

HostCommand::HostCommand(Options options)
    : options_(std::move(options)), thread_([this] { work(); }) {}

HostCommand::~HostCommand() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostCommand::start(int64_t step, std::vector<std::string> variables) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = Job{.step = step, .variables = std::move(variables)};
  }
  changed_.notify_all();
}

bool HostCommand::is_busy() const {
  const std::lock_guard lock(mutex_);
  return waiting_ || running_;
}

bool HostCommand::uses(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return (waiting_ && waiting_->step == step) || running_ == step;
}

std::string HostCommand::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HostCommand::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || waiting_; });
    if (is_ending_) return;
    const Job job = *std::exchange(waiting_, std::nullopt);
    running_ = job.step;
    run(job, lock);
    running_.reset();
  }
}

void HostCommand::run(const Job& job, std::unique_lock<std::mutex>& lock) {
  Seconds pause(options_.first_pause_s);
  for (int attempt = 1;; ++attempt, pause *= 4) {
    const auto begin = Clock::now();
    const std::string problem = run_once(job, lock);
    if (is_ending_) return;
    failure_ = problem.empty() ? ""
                               : cat(options_.flag, " on host ", host_name(), ": ", problem,
                                     "; its output is in ", options_.log);
    if (problem.empty()) {
      log_info(options_.flag, " is done in ",
               format_duration(Seconds(Clock::now() - begin).count()));
      return;
    }
    const bool tries_again = attempt < options_.tries && !waiting_;
    log_warning(failure_, "; try ", attempt, " of ", options_.tries,
                tries_again ? cat(", the next in ", format_duration(pause.count())) : "");
    if (!tries_again) return;
    changed_.wait_for(lock, pause, [this] { return is_ending_ || waiting_; });
    if (is_ending_ || waiting_) return;  // a newer checkpoint replaces this one
  }
}

// Returns why the command failed; empty: it succeeded.
std::string HostCommand::run_once(const Job& job, std::unique_lock<std::mutex>& lock) {
  std::vector<std::string> environment = job.variables;
  environment.push_back("SHALE_OUT=" + std::filesystem::absolute(options_.out).string());
  environment.push_back("SHALE_HOST=" + host_name());
  add_environment(environment);
  pid_t pid = 0;
  if (const int error = spawn(options_.command, options_.log, environment, pid); error != 0) {
    return cat("cannot be started: ", std::strerror(error));
  }
  int status = 0;
  pid_t ended = 0;
  for (int polls = 0; (ended = waitpid(pid, &status, WNOHANG)) == 0;) {
    changed_.wait_for(lock, kPoll);
    if (is_ending_) kill(-pid, polls++ < kPatientPolls ? SIGTERM : SIGKILL);
  }
  if (ended < 0) return cat("its end is unknown: ", std::strerror(errno));
  return status == 0 ? std::string() : exit_text(status);
}

}  // namespace shale::models
