#include "shale/comm/work.h"

#include <chrono>
#include <exception>

#include "shale/base/clock.h"
#include "shale/comm/work_state.h"

namespace shale::comm {

using Clock = std::chrono::steady_clock;

Work::~Work() {
  if (std::uncaught_exceptions() > 0 && !done()) state_->give_up();
}

bool Work::done() const {
  return state_ == nullptr || state_->done();
}

void Work::hold(void* stream) const {
  if (state_ != nullptr) state_->hold(stream);
}

void Work::wait() const {
  if (state_ == nullptr) return;
  if (meter_ == nullptr || done()) return state_->wait();
  const Clock::time_point start = Clock::now();
  state_->wait();
  meter_->add_exposed(traffic_, seconds_since(start));
}

}  // namespace shale::comm
