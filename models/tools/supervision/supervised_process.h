#pragma once

#include <string>
#include <vector>

namespace shale::models {

// Runs commands one after another for a supervisor, which is asked to stop by SIGTERM, SIGINT or
// SIGUSR1. One per process, made before any other thread: it blocks these signals and waits for
// them itself, and becomes the parent of processes that its commands leave behind.
class SupervisedProcess {
 public:
  SupervisedProcess();

  // Runs a command, found in PATH, with nothing on standard input, and returns its exit code, as a
  // shell has it; 127 if it cannot be started. The first request to stop is passed on as SIGUSR1,
  // which mpirun hands to the ranks at once, and training takes as a request to save and end;
  // later ones as SIGTERM. When the command has ended, what it left running is ended too.
  //
  // rank_program: the file name of the program whose ranks the command launches on this host and
  // maybe others; empty: unknown. When a host is cut off, its ranks end, but mpirun can wait for
  // ever for the daemon there: a launcher that has been without ranks for a while is ended, and the
  // code is 76.
  int run(const std::vector<std::string>& command, const std::string& rank_program = {});

  // Waits, or less long when asked to stop.
  void sleep(double seconds);

  bool stop_requested() const { return requests_ > 0; }

 private:
  // The next of the signals within this time; 0: none.
  int wait_for_signal(double seconds);
  void end_leftovers();

  int requests_ = 0;
};

}  // namespace shale::models
