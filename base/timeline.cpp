#include "shale/base/timeline.h"

namespace shale {

void Timeline::start() {
  const std::lock_guard lock(mutex_);
  owner_ = std::this_thread::get_id();
  open_.clear();
  is_recording_ = true;
}

void Timeline::stop() {
  close(0);
  is_recording_ = false;
}

uint32_t Timeline::place_of(std::string_view name) {
  if (const auto it = places_.find(name); it != places_.end()) return it->second;
  const auto place = static_cast<uint32_t>(kept_names_.size());
  places_.emplace(kept_names_.emplace_back(name), place);
  return place;
}

void Timeline::enter(std::string_view name) {
  open(name);
}

size_t Timeline::open(std::string_view name) {
  if (!is_recording_.load(std::memory_order_relaxed)) return 0;
  if (owner_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return 0;
  uint32_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = place_of(name);
  }
  open_.push_back({.begin = nanoseconds(Clock::now()), .name = place});
  return open_.size() - 1;
}

void Timeline::end_top() noexcept {
  const Open top = open_.back();
  open_.pop_back();
  try {
    host_.push_back({.begin = top.begin, .end = nanoseconds(Clock::now()), .name = top.name});
  } catch (const std::bad_alloc&) {
    // The picture lacks a slice; what it shows goes on.
  }
}

void Timeline::leave() noexcept {
  if (!is_recording_.load(std::memory_order_relaxed)) return;
  if (owner_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
  if (!open_.empty()) end_top();
}

void Timeline::close(size_t opened) noexcept {
  if (!is_recording_.load(std::memory_order_relaxed)) return;
  if (owner_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
  while (open_.size() > opened) end_top();
}

void Timeline::add_slice(const std::string& track, std::string_view name, Clock::time_point begin,
                         Clock::time_point end, TraceRecord::About about) {
  if (!is_recording_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  TraceRecord::Slice slice{
      .begin = nanoseconds(begin), .end = nanoseconds(end), .name = place_of(name)};
  if (about != TraceRecord::About{}) {
    slice.about = static_cast<int32_t>(record_.about.size());
    record_.about.push_back(std::move(about));
  }
  record_.tracks[track].push_back(slice);
}

void Timeline::count(const std::string& counter, double value) {
  if (!is_recording_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  record_.counters[counter].push_back({.time = nanoseconds(Clock::now()), .value = value});
}

TraceRecord Timeline::take() {
  const std::lock_guard lock(mutex_);
  TraceRecord record = std::exchange(record_, {});
  record.names.assign(kept_names_.begin(), kept_names_.end());
  record.tracks["host"] = std::exchange(host_, {});
  return record;
}

}  // namespace shale
