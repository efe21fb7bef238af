#pragma once

#include <cstdint>
#include <string>

namespace shale::models {

// What a supervised command's end means.
enum class Ending {
  kDone,       // 0
  kPreempted,  // 75: it stopped on request, after saving
  kHopeless,   // it would end the same way again: bad flags, data, disk, numbers, memory
  kRestart,    // a crash, a lost rank or host, or the launcher's own failure
};

// code: as a shell has it, 128 + the signal for a command that was killed.
Ending ending_of(int code);

// "exit code 76 (ranks disagree, or one was lost)", "killed by signal 9".
std::string describe_exit(int code);

// Decides about restarts. What counts is progress: a run that gets further each time may be
// restarted for ever, one that does not is given up.
class RestartPolicy {
 public:
  struct Options {
    int64_t max_restarts = 3;  // in a row without progress
    double first_delay_s = 1;  // doubled with every restart without progress
    double longest_delay_s = 60;
  };
  explicit RestartPolicy(const Options& options) : options_(options) {}

  struct Decision {
    bool restart = false;
    double delay_s = 0;
    int64_t without_progress = 0;  // restarts in a row, this one included
  };
  // After a failure. step: how far the run's newest checkpoint is; -1: there is none.
  Decision failed_at(int64_t step);

 private:
  Options options_;
  int64_t furthest_ = -1;
  int64_t without_progress_ = 0;
};

}  // namespace shale::models
