#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shale::models {

// Interpretation of a supervised command's exit.
enum class Ending {
  kDone,       // exit code 0
  kPreempted,  // exit code 75: stopped on request, after saving
  kHopeless,   // would fail again: invalid flags, data, too little memory
  kRestart,    // a crash, a lost rank or host, or the launcher's own failure
  kDisk,       // a disk error: quotas and servers may need minutes to recover
  kNonFinite,  // a value that is not finite: faulty hardware, or numbers that diverge again
};

// code: as in a shell; 128 + signal, or the signal alone, as MPICH and Intel MPI return it, for a
// command that was killed. Codes that are not Shale's are failures of a launcher.
Ending ending_of(int code);

// Returns true if the code is one that Shale's programs end with.
bool is_own_code(int code);

// Returns "exit code 76 (ranks disagree, or one was lost)", "killed by signal 9".
std::string describe_exit(int code);

// Decides whether to restart a run. A run that makes progress between failures is restarted without
// limit; a run that does not is given up after `max_restarts`.
class RestartPolicy {
 public:
  struct Options {
    int64_t max_restarts = 3;  // maximum of consecutive restarts without progress
    double first_delay_s = 1;  // doubled with every restart without progress
    double longest_delay_s = 60;
    // Factors after disk errors; with the default values, restarts continue for half an hour.
    int64_t disk_restarts_factor = 4;  // multiplies max_restarts
    double longest_disk_delay_s = 600;
  };
  explicit RestartPolicy(const Options& options) : options_(options) {}

  struct Decision {
    bool restart = false;
    double delay_s = 0;
    int64_t without_progress = 0;  // consecutive restarts, including this one
  };
  struct Failure {
    Ending ending = Ending::kRestart;
    int64_t saved_step = -1;  // step of the run's newest checkpoint; -1: none
    int64_t step = -1;        // steps done when it failed; -1: unknown
  };
  // Call it after a failure. A non-finite value at the same step as before is not restarted.
  Decision failed(const Failure& failure);

 private:
  Options options_;
  int64_t furthest_ = -1;
  int64_t without_progress_ = 0;
  std::optional<int64_t> non_finite_at_;  // step of the last non-finite value
};

}  // namespace shale::models
