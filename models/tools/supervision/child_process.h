#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shale::models {

inline constexpr int kCannotStart = 127;  // exit code of a shell that could not start a program

struct ChildResult {
  int code = 0;            // exit code; 128 + signal after a signal, as in a shell
  bool timed_out = false;  // the program was killed after the timeout
  std::string output;      // standard output and standard error
};

// Runs a program, found in PATH, with empty standard input, and waits for up to `timeout_s`.
// environment: additional variables, "NAME=value". The code is 127 if the program cannot be
// started.
ChildResult run_command(const std::vector<std::string>& command, double timeout_s,
                        const std::vector<std::string>& environment = {});

// Runs `body`, which may crash, in a forked process, whose exit code is body's result. This process
// must have no other threads.
ChildResult run_forked(const std::function<int()>& body, double timeout_s);

// Converts a status of waitpid() to an exit code as in a shell.
int exit_code_of(int wait_status);

}  // namespace shale::models
