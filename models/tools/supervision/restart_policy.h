#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shale::models {

// Interpretation of a supervised command's exit.
enum class Ending {
  kDone,       // exit code 0
  kPreempted,  // exit code 75: stopped on request, after saving
  kHopeless,   // would fail again: invalid flags or data, too little memory
  kRestart,    // a crash, a lost rank or host, or the launcher's own failure
  kDisk,       // a disk error: quotas and servers may need minutes to recover
  kNonFinite,  // a value that is not finite: faulty hardware, or numbers that diverge again
};

// code: exit code of a shell. For a command that was killed, it is 128 + signal or, from MPICH and
// Intel MPI, the signal alone. Codes that are not Shale's are failures of a launcher.
Ending ending_of(int code);

// Returns true if the code is one that Shale's programs end with.
bool is_own_code(int code);

// Describes an exit code: "exit code 76 (ranks disagree, or one was lost)", "killed by signal 9".
std::string describe_exit(int code);

// Decides whether to restart a failed run. As long as the run makes progress between failures,
// restarts are not limited. Without progress, it is given up after `max_restarts`.
class RestartPolicy {
 public:
  struct Options {
    int64_t max_restarts = 3;  // maximum of consecutive restarts without progress
    // Delay before the first restart; doubles with every restart without progress.
    double first_delay_s = 1;
    double longest_delay_s = 60;
    // Factors after disk errors; with the default values, restarts continue for half an hour.
    int64_t disk_restarts_factor = 4;  // multiplies max_restarts
    double longest_disk_delay_s = 600;
  };
  explicit RestartPolicy(const Options& options) : options_(options) {}

  struct Decision {
    bool restart = false;
    double delay_s = 0;
    int64_t without_progress = 0;  // number of consecutive restarts without progress, with this one
  };
  struct Failure {
    Ending ending = Ending::kRestart;
    int64_t saved_step = -1;  // step of the run's newest checkpoint; -1: none
    int64_t step = -1;        // steps done when the run failed; -1: unknown
  };
  // Call it after each failure. Does not restart if the same step has had a non-finite value
  // before.
  Decision failed(const Failure& failure);

 private:
  Options options_;
  int64_t furthest_ = -1;
  int64_t without_progress_ = 0;
  std::optional<int64_t> non_finite_at_;  // step of the last non-finite value
};

}  // namespace shale::models
