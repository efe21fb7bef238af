#pragma once

#include <memory>
#include <utility>

#include "shale/comm/traffic.h"

namespace shale::comm {

class WorkState;

// A collective in flight, or done. Copyable; all copies are the same collective.
//
// The buffers of a collective must stay alive, and must not be written (inputs) or touched
// (outputs), until wait() has returned on this rank. Dropping the handle does not wait; but while
// an exception unwinds, it gives up all collectives in flight and waits until they have let go of
// their buffers, which may be about to disappear.
class Work {
 public:
  Work() = default;  // one that is done
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  ~Work();
  Work(const Work&) = default;
  Work& operator=(const Work&) = default;
  Work(Work&&) = default;
  Work& operator=(Work&&) = default;

  bool done() const;  // true also after a failure

  // Returns when work queued on the collective's stream from now on finds its outputs complete, and
  // no peer touches its buffers any more by the time that work runs. On the CPU that means to block
  // until the collective is done on this rank; a device's stream waits in place of the host. Throws
  // what the collective threw, each time it is called.
  void wait() const;

  // After wait(), for another stream than the collective's.
  void hold(void* stream) const;

  // For backends.
  const std::shared_ptr<WorkState>& state() const { return state_; }

  // The time that wait() blocks is added to the meter from now on.
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
