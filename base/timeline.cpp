#include "shale/base/timeline.h"

namespace shale {

void Timeline::start(const Device& device) {
  const std::lock_guard lock(mutex_);
  owner_ = std::this_thread::get_id();
  open_.clear();
  device_ = device;
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
  if (device_.ranges != nullptr) device_.ranges->enter(name);
  open_.push_back(
      {.begin = nanoseconds(Clock::now()), .name = place, .mark = mark(device_.stream)});
  return open_.size() - 1;
}

size_t Timeline::mark(void* stream) {
  if (device_.marks == nullptr || !is_recording_.load(std::memory_order_relaxed)) {
    return StreamMarks::kNone;
  }
  return device_.marks->mark(stream);
}

void Timeline::end_top() noexcept {
  const Open top = open_.back();
  open_.pop_back();
  if (device_.ranges != nullptr) device_.ranges->leave();
  try {
    host_.push_back({.begin = top.begin, .end = nanoseconds(Clock::now()), .name = top.name});
    if (top.mark == StreamMarks::kNone) return;
    of_scopes_.push_back({.begin = top.mark, .end = mark(device_.stream), .name = top.name});
  } catch (const std::exception&) {
    // This slice is then missing in the trace. Recording continues; if the device has failed,
    // another call reports its error.
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
  slice.about = keep(std::move(about));
  record_.tracks[track].push_back(slice);
}

void Timeline::add_device_slice(const std::string& track, std::string_view name, size_t begin,
                                size_t end, TraceRecord::About about) {
  if (begin == StreamMarks::kNone || end == StreamMarks::kNone) return;
  const std::lock_guard lock(mutex_);
  marked_[track].push_back(
      {.begin = begin, .end = end, .name = place_of(name), .about = keep(std::move(about))});
}

int32_t Timeline::keep(TraceRecord::About about) {
  if (about == TraceRecord::About{}) return -1;
  record_.about.push_back(std::move(about));
  return static_cast<int32_t>(record_.about.size()) - 1;
}

void Timeline::count(const std::string& counter, double value) {
  if (!is_recording_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  record_.counters[counter].push_back({.time = nanoseconds(Clock::now()), .value = value});
}

TraceRecord Timeline::take(const std::function<int64_t(size_t)>& time_of) {
  const std::lock_guard lock(mutex_);
  TraceRecord record = std::exchange(record_, {});
  record.names.assign(kept_names_.begin(), kept_names_.end());
  record.tracks["host"] = std::exchange(host_, {});
  auto marked = std::exchange(marked_, {});
  if (!of_scopes_.empty()) marked["device"] = std::exchange(of_scopes_, {});
  for (const auto& [track, slices] : marked) {
    for (const Marked& slice : slices) {
      if (!time_of || slice.end == StreamMarks::kNone) continue;
      record.tracks[track].push_back({.begin = time_of(slice.begin),
                                      .end = time_of(slice.end),
                                      .name = slice.name,
                                      .about = slice.about});
    }
  }
  return record;
}

}  // namespace shale
