#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shale::models {

// Runs commands one after another for a supervisor, which SIGTERM, SIGINT, SIGUSR1 or SIGUSR2 ask
// to stop. There is one instance per process, made before any other thread: it blocks these signals
// and waits for them itself, and adopts processes that its commands leave behind.
class SupervisedProcess {
 public:
  SupervisedProcess();

  // Runs a command, found in PATH, with empty standard input, and returns its exit code as in a
  // shell; 127 if it cannot be started. The first stop request is forwarded as SIGUSR1, which
  // mpirun passes to the ranks immediately, and which makes training save and end; later requests
  // as SIGTERM. Processes that the command leaves running are killed when it ends.
  //
  // rank_program: file name of the program whose ranks the command launches on this host and
  // possibly others; empty: unknown. If a host is cut off, its ranks end, but mpirun may wait
  // forever for the daemon there: a launcher that has had no ranks for a while is killed, and the
  // code is 76. has_lost_host: returns true once a host of the command is known to be lost, which
  // has the same effect.
  int run(const std::vector<std::string>& command, const std::string& rank_program = {},
          const std::function<bool()>& has_lost_host = {});

  // Sleeps for `seconds`, or until asked to stop.
  void sleep(double seconds);

  bool stop_requested() const { return requests_ > 0; }

  // Returns a new descriptor, for poll(), from which these signals and SIGCHLD can be read instead.
  static int signal_descriptor();
  // Waits until this process has no children, and kills those that take too long.
  void end_leftovers();

 private:
  // Waits for the next signal; returns 0 after `seconds`.
  int wait_for_signal(double seconds);

  int requests_ = 0;
};

}  // namespace shale::models
