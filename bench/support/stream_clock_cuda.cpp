// Marks on a GPU's streams. Compiled only in builds with CUDA.
#include <deque>

#include "shale/bench/support/stream_clock.h"
#include "shale/bench/support/timed_event_cuda.h"

namespace shale::bench {
namespace {

class CudaClock final : public StreamClock {
 public:
  // Events are used again in the next step: making one takes longer than recording it.
  size_t mark(void* stream) override {
    if (used_ == events_.size()) events_.emplace_back();
    events_[used_].record(static_cast<cudaStream_t>(stream));
    return used_++;
  }
  double seconds(size_t from, size_t to) const override {
    return events_.at(to).seconds_since(events_.at(from));
  }
  void forget_marks() override { used_ = 0; }

 private:
  std::deque<TimedEvent> events_;
  size_t used_ = 0;
};

}  // namespace

std::unique_ptr<StreamClock> make_cuda_clock() {
  return std::make_unique<CudaClock>();
}

}  // namespace shale::bench
