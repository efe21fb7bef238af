#include "shale/bench/support/stream_clock.h"

#include <deque>
#include <vector>

#include "shale/base/error.h"
#include "shale/bench/support/timing.h"
#include "shale/kernels/simt/engine/stream.h"

namespace shale::bench {
namespace {

double seconds_from(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A stream runs at once.
class CpuClock final : public StreamClock {
 public:
  size_t mark(void*) override {
    marks_.push_back(Clock::now());
    return marks_.size() - 1;
  }
  double seconds(size_t from, size_t to) const override {
    return seconds_from(marks_.at(from), marks_.at(to));
  }
  void forget_marks() override { marks_.clear(); }

 private:
  std::vector<Clock::time_point> marks_;
};

class EmuClock final : public StreamClock {
 public:
  size_t mark(void* stream) override {
    Clock::time_point& passed = marks_.emplace_back();  // a deque's elements stay where they are
    static_cast<emulator::Stream*>(stream)->enqueue([&passed] { passed = Clock::now(); });
    return marks_.size() - 1;
  }
  double seconds(size_t from, size_t to) const override {
    return seconds_from(marks_.at(from), marks_.at(to));
  }
  void forget_marks() override { marks_.clear(); }

 private:
  std::deque<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<StreamClock> make_stream_clock(const Device& device) {
  switch (device.type) {
    case DeviceType::kCpu: return std::make_unique<CpuClock>();
    case DeviceType::kEmu: return std::make_unique<EmuClock>();
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      return make_cuda_clock();
#else
      break;
#endif
  }
  throw UnavailableError(cat("device: ", device, " is not part of this build"));
}

}  // namespace shale::bench
