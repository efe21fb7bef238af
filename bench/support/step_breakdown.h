#pragma once

#include <deque>
#include <string>
#include <vector>

#include "shale/bench/support/part_names.h"
#include "shale/bench/support/peaks.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/train_loop.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale::bench {

// Target: maximum ratio of a step's time to the sum of its parts.
inline constexpr double kMostOverParts = 1.08;

// One line of a breakdown; all numbers are per step.
struct PartTime {
  std::string name;
  double calls = 0;
  double in_step_seconds = 0;
  double alone_seconds = 0;  // time of its calls if each is repeated several times in a row
  double floor_seconds = 0;  // time of its FLOP or bytes at the measured peak; 0: peak unknown
  kernels::Cost cost{};
};

// Breakdown of the time of a step.
struct StepBreakdown {
  std::vector<PartTime> parts;  // parts in the order of a step
  double step_seconds = 0;
  double exposed_comm_seconds = 0;

  PartTime all_parts() const;
  // Returns the time that no part accounts for: host time between kernels, waits of the device for
  // the host, and disturbances. It may be slightly negative, because steps differ.
  double gap_seconds() const;
  // Returns the step's time relative to the sum of the parts' alone_seconds.
  double ratio() const { return step_seconds / all_parts().alone_seconds; }
};

// Times kernel calls by part, in normal steps and in steps that repeat each call. Calls must come
// from one thread.
class CallTimer final : public kernels::CallObserver {
 public:
  CallTimer(const PartNames& names, const Peaks& peaks, StreamClock& clock)
      : names_(names), peaks_(peaks), clock_(clock) {}

  // Selects whether each call of the following steps is repeated. A repeated call overwrites its
  // own output, so results are meaningless; and small operands are in caches, so it is faster.
  void repeat_calls(bool repeat) { repeat_ = repeat; }
  void around(const kernels::SlotCall& call) override;
  void end_step();  // call it after the device has finished the step

  std::vector<PartTime> parts() const;  // returns medians over the steps

 private:
  struct Part {
    explicit Part(std::string part_name) : name(std::move(part_name)) {}
    std::string name;
    int64_t calls = 0;  // number of calls in all steps so far
    double floor_seconds = 0;
    kernels::Cost cost;
    Samples in_step, alone;  // one value per step
    double seconds = 0;      // seconds in the current step
  };
  Part& part_named(const std::string& name);

  struct Timed {
    Part* part;
    size_t from, to;  // indices of the clock's marks at the begin and end
    int calls;
  };

  const PartNames& names_;
  const Peaks& peaks_;
  StreamClock& clock_;
  bool repeat_ = false;
  std::deque<Part> parts_;  // in the order of their first calls; in a deque, elements never move
  std::vector<Timed> timed_;
};

// Repeats `rounds` times: a normal step, a step that times each kernel call, and a step that
// repeats kernel calls. `peaks` gives the roofline limit of each part of the step. All ranks must
// call it.
StepBreakdown measure_breakdown(TrainLoop& loop, KernelRecorder& recorder, const Peaks& peaks,
                                StreamClock& clock, int64_t rounds);

std::string breakdown_table(const StepBreakdown& breakdown);
Json breakdown_rows(const StepBreakdown& breakdown);

}  // namespace shale::bench
