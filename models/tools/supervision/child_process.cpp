#include "shale/models/tools/supervision/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shale/base/error.h"

namespace shale::models {
namespace {

// Runs in the child. Redirects standard streams to the pipe and starts a process group, so that the
// child's own children can be killed with it.
void become_child(int output) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
}

// Reads until the child has ended. The end of the pipe may come later, because the child's own
// children may keep it open.
void read_until_end(int fd, pid_t child, double timeout_s, ChildResult& result) {
  const auto start = std::chrono::steady_clock::now();
  bool ended = false;
  for (;;) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, ended ? 0 : 20) > 0) {
      char part[4096];
      const ssize_t got = read(fd, part, sizeof part);
      if (got > 0) {
        result.output.append(part, static_cast<size_t>(got));
        continue;
      }
    }
    if (ended) return;
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      result.code = exit_code_of(status);
      ended = true;
      continue;  // once more, to read what is left in the pipe
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() < timeout_s || result.timed_out) continue;
    result.timed_out = true;
    kill(-child, SIGKILL);
  }
}

}  // namespace

int exit_code_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return 128 + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

ChildResult run_forked(const std::function<int()>& body, double timeout_s) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw UnavailableError(cat("pipe: ", std::strerror(errno)));
  }
  std::fflush(nullptr);  // the child would otherwise print buffered text again
  const pid_t child = fork();
  if (child < 0) {
    const int reason = errno;
    close(ends[0]);
    close(ends[1]);
    throw UnavailableError(cat("fork: ", std::strerror(reason)));
  }
  if (child == 0) {
    become_child(ends[1]);
    int code = static_cast<int>(ExitCode::kInternal);
    try {
      code = body();
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  close(ends[1]);
  ChildResult result;
  read_until_end(ends[0], child, timeout_s, result);
  close(ends[0]);
  return result;
}

ChildResult run_command(const std::vector<std::string>& command, double timeout_s,
                        const std::vector<std::string>& environment) {
  return run_forked(
      [&] {
        std::vector<char*> arguments;
        for (const std::string& argument : command) {
          arguments.push_back(const_cast<char*>(argument.c_str()));
        }
        arguments.push_back(nullptr);
        for (const std::string& variable : environment) {
          const size_t equals = variable.find('=');
          setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
        }
        execvp(arguments[0], arguments.data());
        std::printf("%s: %s\n", arguments[0], std::strerror(errno));
        return kCannotStart;
      },
      timeout_s);
}

}  // namespace shale::models
