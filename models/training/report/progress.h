#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "shale/base/log.h"
#include "shale/models/training/report/metrics.h"

namespace shale {

// State of a run that its user sees.
struct ProgressState {
  int64_t step = 0;  // number of completed steps
  int64_t total_steps = 0;
  std::optional<double> epoch = {};  // epochs done
  float loss = 0;
  std::optional<double> lr = {};         // learning rate of the last step
  std::optional<double> grad_norm = {};  // gradient norm before clipping
  std::string item = "tok";              // short name of the counted item
  std::optional<double> items_per_s = {};
  std::optional<double> mfu = {};  // model FLOPs utilization, 0 to 1
  std::optional<int64_t> memory_bytes = {};
};

// Returns a line such as "step  120/1000  12% | epoch 0.48 | loss 3.4123 | lr 2.9e-4 | norm 0.52 |
// 45.2k tok/s | mfu 41.3% | mem 1.2 GiB | 3m 12s left", without unknown values. If it is longer
// than `columns`, it omits memory, MFU, percentage, throughput and bars, in this order, until it
// fits.
std::string format_progress(const ProgressState& state, std::optional<double> seconds_left,
                            size_t columns = std::string::npos);

// Returns a line such as "step 120/1000  12% | validation loss 3.4123 | 65.5k tokens in 2s".
// total_steps: 0 if unknown.
std::string format_evaluation(const EvalMetrics& metrics, int64_t total_steps);

// Returns a text such as "42s", "3m 12s", "5h 02m" or "2d 07h".
std::string format_duration(double seconds);

// Shows the progress of a run as a status line, if the log has one. Otherwise prints a line for the
// first and the last step, and after every 2% of the steps or every 10 seconds.
class Progress {
 public:
  // Returns seconds since an arbitrary point in time; tests supply their own.
  using Clock = std::function<double()>;

  // The log must outlive this. Default clock: steady_clock.
  explicit Progress(Logger& log, Clock clock = {});

  void update(const ProgressState& state);
  void finish();  // prints the last state as a line that stays; call it when the run ends or stops

 private:
  bool is_due(const ProgressState& state, double now) const;
  std::optional<double> seconds_left(const ProgressState& state, double now) const;

  Logger& log_;
  const Clock clock_;
  // The remaining time is estimated from steps after the first one, which warms up caches.
  std::optional<double> counted_from_s_;
  int64_t counted_from_step_ = 0;
  std::optional<ProgressState> last_;
  std::optional<double> last_left_s_;
  int64_t shown_step_ = -1;
  double shown_at_s_ = 0;
  bool last_is_plain_ = false;  // the last state has been printed as a line that stays
};

}  // namespace shale
