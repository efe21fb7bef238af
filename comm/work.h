#pragma once

#include <memory>
#include <utility>

#include "shale/comm/traffic.h"

namespace shale::comm {

class WorkState;

// Handle to a collective that is in flight or done. Copies refer to the same collective.
//
// Until wait() has returned on this rank, the buffers must stay alive, inputs must not be written,
// and outputs must not be read or written. Destroying the handle does not wait, with one exception:
// while a C++ exception unwinds the stack, the destructor cancels all collectives in flight. It
// then waits until they no longer use their buffers, which may be freed next.
class Work {
 public:
  Work() = default;  // refers to a finished collective
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  ~Work();
  Work(const Work&) = default;
  Work& operator=(const Work&) = default;
  Work(Work&&) = default;
  Work& operator=(Work&&) = default;

  bool done() const;  // true also after a failure

  // Makes the outputs visible to work that is queued on the collective's stream after this call.
  // When that work runs, no peer touches the buffers any more. On the CPU this blocks until the
  // collective is done on this rank. With a device, the stream waits and the host does not. Throws
  // the collective's exception, on each call.
  void wait() const;

  // Makes another stream wait too: work that is queued on `stream` from now on. Call it after
  // wait().
  void hold(void* stream) const;

  // Used by backends.
  const std::shared_ptr<WorkState>& state() const { return state_; }

  // From now on, adds the time for which wait() blocks to the meter.
  void measure(std::shared_ptr<TrafficMeter> meter, Traffic traffic) {
    meter_ = std::move(meter);
    traffic_ = traffic;
  }

 private:
  std::shared_ptr<WorkState> state_;
  std::shared_ptr<TrafficMeter> meter_;
  Traffic traffic_ = Traffic::kControl;
};

}  // namespace shale::comm
