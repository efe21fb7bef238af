#pragma once

#include <cstdint>
#include <string>

namespace shale::models {

// Interpretation of a supervised command's exit.
enum class Ending {
  kDone,       // exit code 0
  kPreempted,  // exit code 75: stopped on request, after saving
  kHopeless,   // would fail again: invalid flags, data, disk, numbers, memory
  kRestart,    // a crash, a lost rank or host, or the launcher's own failure
};

// code: as in a shell; 128 + signal for a command that was killed.
Ending ending_of(int code);

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
  };
  explicit RestartPolicy(const Options& options) : options_(options) {}

  struct Decision {
    bool restart = false;
    double delay_s = 0;
    int64_t without_progress = 0;  // consecutive restarts, including this one
  };
  // Call it after a failure. step: step of the run's newest checkpoint; -1: none.
  Decision failed_at(int64_t step);

 private:
  Options options_;
  int64_t furthest_ = -1;
  int64_t without_progress_ = 0;
};

}  // namespace shale::models
