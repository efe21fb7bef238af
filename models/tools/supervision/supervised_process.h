#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shale::models {

// Runs commands, one after another, for a supervisor. SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask it
// to stop. A process has one instance, made before any other thread: it blocks these signals, waits
// for them, and adopts processes that its commands leave behind.
class SupervisedProcess {
 public:
  SupervisedProcess();

  // Runs a command, found in PATH, with empty standard input. Returns its exit code as in a shell;
  // 127 if it cannot be started. Forwards the first stop request as SIGUSR1, which mpirun passes to
  // the ranks immediately, and which makes training save and end. Forwards later requests as
  // SIGTERM. When the command ends, kills the processes that it leaves running.
  //
  // rank_program: file name of the program whose ranks the command launches, on this host and
  // possibly others; empty: unknown. If a host is cut off, its ranks end, but mpirun may wait
  // forever for the daemon on it. So a launcher without ranks for a while is killed, and the code
  // is 76. has_lost_host: returns true if a host of the command is known to be lost; then the
  // launcher is killed in the same way.
  int run(const std::vector<std::string>& command, const std::string& rank_program = {},
          const std::function<bool()>& has_lost_host = {});

  // Sleeps for `seconds`. A stop request ends the sleep.
  void sleep(double seconds);

  bool stop_requested() const { return requests_ > 0; }

  // Returns a new descriptor for poll(). The caller reads SIGCHLD and the signals that ask to stop
  // from it, in place of this object.
  static int signal_descriptor();
  // Waits until this process has no children. Kills those that take too long.
  void end_leftovers();

 private:
  // Waits for the next signal; returns 0 after `seconds`.
  int wait_for_signal(double seconds);

  int requests_ = 0;
};

}  // namespace shale::models
