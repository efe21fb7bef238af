#include "shale/models/tools/supervision/supervised_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "shale/base/error.h"
#include "shale/models/tools/supervision/child_process.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds that the ranks of a killed mpirun have to end. They usually need less than one.
constexpr double kLeftoverPatience_s = 3;
// Maximum time that mpirun may run without ranks. It usually ends a second or two after them.
constexpr std::chrono::seconds kIdleLauncher{15};

sigset_t supervised_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  // Ends the command if the supervisor is killed.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);  // the terminal's signals then reach only the supervisor, which forwards them
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  const sigset_t set = supervised_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "shale run: %s: %s\n", arguments[0], std::strerror(errno));
  _exit(kCannotStart);
}

// Returns the children of all threads of a process. If it is this process, they include adopted
// processes.
std::vector<pid_t> children(pid_t parent) {
  namespace fs = std::filesystem;
  std::vector<pid_t> list;
  std::error_code gone;
  for (const auto& thread : fs::directory_iterator(cat("/proc/", parent, "/task"), gone)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child = 0; file >> child;) list.push_back(child);
  }
  return list;
}

bool is_running(const std::string& program, pid_t root) {
  constexpr size_t kNameLength = 15;  // maximum length of a process name in the kernel
  std::string name;
  std::getline(std::ifstream(cat("/proc/", root, "/comm")), name);
  if (name == program.substr(0, kNameLength)) return true;
  const std::vector<pid_t> below = children(root);
  return std::any_of(below.begin(), below.end(),
                     [&](pid_t child) { return is_running(program, child); });
}

}  // namespace

SupervisedProcess::SupervisedProcess() {
  const sigset_t set = supervised_signals();
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) {
    throw InternalError(cat("sigprocmask: ", std::strerror(errno)));
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // adopts processes that commands leave behind
}

int SupervisedProcess::signal_descriptor() {
  const sigset_t set = supervised_signals();
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int SupervisedProcess::wait_for_signal(double seconds) {
  const sigset_t set = supervised_signals();
  const auto whole = static_cast<time_t>(seconds);
  const timespec time{.tv_sec = whole,
                      .tv_nsec = static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  const int signal = sigtimedwait(&set, nullptr, &time);
  if (signal > 0 && signal != SIGCHLD) ++requests_;
  return signal > 0 ? signal : 0;
}

int SupervisedProcess::run(const std::vector<std::string>& command, const std::string& rank_program,
                           const std::function<bool()>& has_lost_host) {
  std::fflush(nullptr);  // otherwise the child would print it again
  const pid_t child = fork();
  if (child < 0) throw UnavailableError(cat("fork: ", std::strerror(errno)));
  if (child == 0) become(command);
  int passed_on = requests_;
  bool had_ranks = false;
  auto last_seen = Clock::now();
  for (;;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      end_leftovers();
      return exit_code_of(status);
    }
    wait_for_signal(/*seconds=*/1);
    for (; passed_on < requests_; ++passed_on) kill(child, passed_on == 0 ? SIGUSR1 : SIGTERM);
    const bool lost = has_lost_host && has_lost_host();
    const bool has_ranks = !lost && !rank_program.empty() && is_running(rank_program, child);
    if (has_ranks) last_seen = Clock::now();
    had_ranks = had_ranks || has_ranks;
    if (!had_ranks || Clock::now() < last_seen + kIdleLauncher) continue;
    kill(child, SIGKILL);  // mpirun is already ending its ranks, and ignores other signals
    end_leftovers();
    return static_cast<int>(ExitCode::kComm);
  }
}

void SupervisedProcess::end_leftovers() {
  const auto start = Clock::now();
  for (bool killed = false;;) {
    pid_t ended = 0;
    do ended = waitpid(-1, nullptr, WNOHANG);
    while (ended > 0);
    if (ended < 0) return;  // there are no children
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (waited.count() > kLeftoverPatience_s && !killed) {
      for (const pid_t child : children(getpid())) kill(child, SIGKILL);
      killed = true;
    }
    // Processes that hang in the kernel cannot be killed.
    if (waited.count() > 2 * kLeftoverPatience_s) return;
    wait_for_signal(0.05);
  }
}

void SupervisedProcess::sleep(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (!stop_requested()) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (left <= 0) return;
    wait_for_signal(left);
  }
}

}  // namespace shale::models
