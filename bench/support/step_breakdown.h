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

// A step is to take at most so many times what its parts take alone.
inline constexpr double kMostOverParts = 1.08;

// One line of a breakdown; all numbers are per step.
struct PartTime {
  std::string name;
  double calls = 0;
  double in_step_seconds = 0;
  double alone_seconds = 0;  // its calls again, each several times in a row
  double floor_seconds = 0;  // what its FLOP or bytes need at the measured peak; 0: no peak
  kernels::Cost cost{};
};

// Where the time of a step goes.
struct StepBreakdown {
  std::vector<PartTime> parts;  // in the order of a step
  double step_seconds = 0;
  double exposed_comm_seconds = 0;

  PartTime all_parts() const;
  // What is left: the host at work between kernels, a device that waits for it, disturbances. It
  // may be below zero by what steps differ.
  double gap_seconds() const;
  // The step against the sum of its parts alone.
  double ratio() const { return step_seconds / all_parts().alone_seconds; }
};

// Times kernel calls by part, those of steps as they are and those of steps in which each call is
// made again and again. Of calls of one thread.
class CallTimer final : public kernels::CallObserver {
 public:
  CallTimer(const PartNames& names, const Peaks& peaks, StreamClock& clock)
      : names_(names), peaks_(peaks), clock_(clock) {}

  // Says of the steps from now on whether each call is made twice. A repeated call works on what it
  // has worked on before: results mean nothing, and what of its operands fits a cache is there.
  void repeat_calls(bool repeat) { repeat_ = repeat; }
  void around(const kernels::SlotCall& call) override;
  void end_step();  // the device has done all of it

  std::vector<PartTime> parts() const;  // medians over the steps

 private:
  struct Part {
    explicit Part(std::string part_name) : name(std::move(part_name)) {}
    std::string name;
    int64_t calls = 0;  // of the step, or of all
    double floor_seconds = 0;
    kernels::Cost cost;
    Samples in_step, alone;  // a value per step
    double seconds = 0;      // of the step so far
  };
  Part& part_named(const std::string& name);

  struct Timed {
    Part* part;
    size_t from, to;  // marks
    int calls;
  };

  const PartNames& names_;
  const Peaks& peaks_;
  StreamClock& clock_;
  bool repeat_ = false;
  std::deque<Part> parts_;  // in the order of their first calls; none ever moves
  std::vector<Timed> timed_;
};

// `rounds` times, in turns: a step as it is, one whose calls are timed, one whose calls are timed
// alone. `peaks` has what bounds the parts. Collective.
StepBreakdown measure_breakdown(TrainLoop& loop, KernelRecorder& recorder, const Peaks& peaks,
                                StreamClock& clock, int64_t rounds);

std::string breakdown_table(const StepBreakdown& breakdown);
Json breakdown_rows(const StepBreakdown& breakdown);

}  // namespace shale::bench
