#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shale::models {

struct ChildResult {
  int code = 0;            // as a shell has it: the exit code, or 128 + the signal that ended it
  bool timed_out = false;  // it was killed
  std::string output;      // of standard output and standard error
};

// Runs a program, found in PATH, with nothing on standard input, and waits for it for at most
// `timeout_s`. environment: further variables, "NAME=value". A program that cannot be started gives
// code 127.
ChildResult run_command(const std::vector<std::string>& command, double timeout_s,
                        const std::vector<std::string>& environment = {});

// Runs `body` in a copy of this process, which ends with what it returns: for what may crash.
// There must be no other threads.
ChildResult run_forked(const std::function<int()>& body, double timeout_s);

// The exit code in what waitpid() gives, as a shell has it.
int exit_code_of(int wait_status);

}  // namespace shale::models
