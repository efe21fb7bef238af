#pragma once

#include <memory>
#include <utility>

#include "shale/comm/traffic.h"

namespace shale::comm {

class WorkState;

// Handle to a collective that is in flight or done. Copies refer to the same collective.
//
// Until wait() has returned on this rank, the buffers must stay alive; inputs must not be written,
// and outputs must not be touched. Destroying the handle does not wait. The exception: while a C++
// exception unwinds the stack, the destructor cancels all collectives in flight and waits until
// they no longer use their buffers, which are perhaps about to be freed.
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

  // Makes the outputs visible to work that is queued on the collective's stream after this call; no
  // peer touches the buffers any more by the time that work runs. On the CPU this blocks until the
  // collective is done on this rank; with a device its stream waits and the host does not. Throws
  // the collective's exception, on each call.
  void wait() const;

  // Makes work queued on `stream` from now on wait for the collective, too. Call after wait().
  void hold(void* stream) const;

  // Used by backends.
  const std::shared_ptr<WorkState>& state() const { return state_; }

  // Adds the time for which wait() blocks to the meter from now on.
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
