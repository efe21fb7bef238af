#include "shale/runtime/tensor/device_marks.h"

#include <algorithm>
#include <cmath>

namespace shale {
namespace {

constexpr int kTries = 8;

int64_t now_ns() {
  return Timeline::nanoseconds(Timeline::Clock::now());
}

}  // namespace

DeviceMarks::DeviceMarks(DeviceBackend& backend, void* stream, std::unique_ptr<StreamClock> clock)
    : backend_(backend), stream_(stream), clock_(std::move(clock)) {}

size_t DeviceMarks::mark(void* stream) {
  if (backend_.captures(stream)) return kNone;
  const std::lock_guard lock(mutex_);
  return clock_->mark(stream);
}

void DeviceMarks::read() {
  const std::lock_guard lock(mutex_);
  clock_->read();
}

void DeviceMarks::anchor() {
  backend_.synchronize(stream_);
  Anchor best;
  for (int i = 0; i < kTries; ++i) {
    const int64_t before = now_ns();
    const size_t number = mark(stream_);
    backend_.synchronize(stream_);
    const int64_t width = now_ns() - before;
    if (best.mark != kNone && width / 2 >= best.error_ns) continue;
    best = {.mark = number, .host_ns = before + width / 2, .error_ns = width / 2};
  }
  if (first_.mark == kNone) first_ = best;
  last_ = best;
}

int64_t DeviceMarks::nanoseconds(size_t mark) {
  const std::lock_guard lock(mutex_);
  clock_->read_all();
  const double between = clock_->seconds(first_.mark, last_.mark);
  const double rate =
      between > 0 ? static_cast<double>(last_.host_ns - first_.host_ns) / between : 1e9;
  return first_.host_ns + std::llround(rate * clock_->seconds(first_.mark, mark));
}

int64_t DeviceMarks::error_ns() const {
  return std::max(first_.error_ns, last_.error_ns);
}

}  // namespace shale
