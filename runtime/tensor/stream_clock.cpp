#include "shale/runtime/tensor/stream_clock.h"

#include "shale/base/error.h"

namespace shale {
namespace {

// Clock of the CPU, whose streams run synchronously.
class CpuClock final : public StreamClock {
 private:
  struct Passed final : Point {
    HostClock::time_point time;
  };
  static Passed& of(Point& point) { return static_cast<Passed&>(point); }
  static const Passed& of(const Point& point) { return static_cast<const Passed&>(point); }

  std::unique_ptr<Point> make_point() override { return std::make_unique<Passed>(); }
  void record(Point& point, void*) override { of(point).time = HostClock::now(); }
  bool passed(const Point&) override { return true; }
  void wait(const Point&, void*) override {}
  double seconds_between(const Point& from, const Point& to) override {
    return std::chrono::duration<double>(of(to).time - of(from).time).count();
  }
};

}  // namespace

size_t StreamClock::mark(void* stream) {
  Pending pending{.point = nullptr, .stream = stream};
  if (unused_.empty()) {
    pending.point = make_point();
  } else {
    pending.point = std::move(unused_.back());
    unused_.pop_back();
  }
  record(*pending.point, stream);
  pending_.push_back(std::move(pending));
  return forgotten_ + times_.size() + pending_.size() - 1;
}

void StreamClock::read_first() {
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  double seconds = 0;
  auto last = last_.find(first.stream);
  if (last == last_.end()) {
    if (!last_.empty()) {
      const Last& other = last_.begin()->second;
      seconds = other.seconds + seconds_between(*other.point, *first.point);
    }
    last = last_.emplace(first.stream, Last{}).first;
  } else {
    seconds = last->second.seconds + seconds_between(*last->second.point, *first.point);
    unused_.push_back(std::move(last->second.point));
  }
  last->second = {.point = std::move(first.point), .seconds = seconds};
  times_.push_back(seconds);
}

size_t StreamClock::read() {
  while (!pending_.empty() && passed(*pending_.front().point)) read_first();
  return forgotten_ + times_.size();
}

void StreamClock::read_all() {
  while (!pending_.empty()) {
    wait(*pending_.front().point, pending_.front().stream);
    read_first();
  }
}

double StreamClock::seconds(size_t from, size_t to) {
  read();
  return times_.at(to - forgotten_) - times_.at(from - forgotten_);
}

void StreamClock::forget_before(size_t mark) {
  for (; forgotten_ < mark; ++forgotten_) times_.pop_front();
}

void StreamClock::forget_marks() {
  read_all();
  times_.clear();
  forgotten_ = 0;
  for (auto& [stream, last] : last_) unused_.push_back(std::move(last.point));
  last_.clear();
}

std::unique_ptr<StreamClock> make_stream_clock(const Device& device) {
  switch (device.type) {
    case DeviceType::kCpu: return std::make_unique<CpuClock>();
    case DeviceType::kEmu:
#ifdef SHALE_HAVE_EMULATOR
      return make_emu_stream_clock();
#else
      break;
#endif
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      return make_cuda_stream_clock(device);
#else
      break;
#endif
  }
  throw UnavailableError(cat("clock: ", device, " is not part of this build"));
}

}  // namespace shale
