#pragma once

#include <csignal>
#include <vector>

namespace shale::models {

// Requests from outside to stop: SIGTERM (a job that is to end), SIGUSR1 (a warning that it will;
// mpirun passes it on at once) and SIGINT. From construction on they only set a flag, at which
// training looks when a step ends; a second SIGINT ends the process as usual. One per process, made
// before MPI starts and anything else that takes time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // what was installed before
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first that has come; 0: none has.
  static int received();

 private:
  struct Installed {
    int signal;
    struct sigaction before;
  };
  std::vector<Installed> installed_;
};

}  // namespace shale::models
