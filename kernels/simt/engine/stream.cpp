#include "shale/kernels/simt/engine/stream.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"

namespace shale::emulator {

void Stream::enqueue(std::function<void()> work) {
  enqueue_when({}, std::move(work));
}

void Stream::enqueue_when(std::function<bool()> ready, std::function<void()> work) {
  {
    const std::lock_guard lock(set_.mutex_);
    if (set_.captures_locked(this)) {
      return set_.capture_->add_work(*this, std::move(work), std::move(ready));
    }
  }
  set_.push(*this, {.work = std::move(work), .ready = std::move(ready)});
}

bool Stream::advance() {
  const std::lock_guard lock(set_.mutex_);
  Stream* const next = set_.pick(nullptr);
  if (next != nullptr) set_.run_front(*next);
  return next != nullptr;
}

bool Stream::runnable() const {
  if (items_.empty() || !set_.is_first(*this)) return false;
  const Item& front = items_.front();
  return front.waits ? front.event->done : !front.ready || front.ready();
}

GlobalMemory& Stream::memory() {
  return set_.memory();
}
void Stream::synchronize() {
  set_.synchronize(this);
}
void Stream::drain() noexcept {
  set_.drain();
}

Stream* StreamSet::create() {
  const std::lock_guard lock(mutex_);
  const size_t number = created_++;
  const size_t queue = options_.queues > 0 ? number % size_t(options_.queues) : number;
  streams_.push_back(std::unique_ptr<Stream>(new Stream(*this, options_, queue)));
  return streams_.back().get();
}

void StreamSet::destroy(Stream* stream) noexcept {
  try {
    synchronize(stream);
  } catch (const std::exception& error) {
    log_warning(cat("emulator: a stream was destroyed whose work failed: ", error.what()));
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& owned) { return owned.get() == stream; });
}

void StreamSet::push(Stream& stream, Stream::Item item) {
  const std::lock_guard lock(mutex_);
  item.number = next_number_++;
  stream.items_.push_back(std::move(item));
}

std::shared_ptr<Event> StreamSet::record(Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    if (captures_locked(stream)) return capture_->add_record(*stream);
  }
  auto event = std::make_shared<Event>();
  push(*stream, {.event = event});
  return event;
}

void StreamSet::wait(Stream* stream, const std::shared_ptr<Event>& event) {
  {
    const std::lock_guard lock(mutex_);
    const bool joins = capture_ != nullptr && event->recording == capture_->id();
    if (joins || captures_locked(stream)) return capture_->add_wait(*stream, *event);
    refuse_in_capture(event->recording != 0, "a stream waits for an event of a capture that ended");
  }
  push(*stream, {.event = event, .waits = true});
}

void StreamSet::synchronize(Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    refuse_in_capture(stream == nullptr ? capture_ != nullptr : captures_locked(stream),
                      "the host waits for a captured stream");
  }
  std::unique_lock lock(mutex_);
  run_until(lock, stream, [&] { return stream != nullptr ? stream->items_.empty() : empty(); });
  throw_error();
}

void StreamSet::drain() noexcept {
  std::unique_lock lock(mutex_);
  run_until(lock, nullptr, [this] { return empty(); });
}

void StreamSet::synchronize(const Event& event) {
  refuse_in_capture(event.recording != 0, "the host waits for a captured event");
  std::unique_lock lock(mutex_);
  run_until(lock, nullptr, [&] { return event.done; });
  throw_error();
}

bool StreamSet::done(const Event& event) {
  refuse_in_capture(event.recording != 0, "the host asks for a captured event");
  const std::lock_guard lock(mutex_);
  if (!event.done) {
    if (Stream* stream = pick(nullptr)) run_front(*stream);
  }
  return event.done;
}

void StreamSet::begin_capture(Stream* stream) {
  const std::lock_guard lock(mutex_);
  if (stream == nullptr || capture_ != nullptr) {
    throw InternalError(cat("capture: ",
                            stream == nullptr ? "the default stream cannot be captured"
                                              : "another capture is in progress",
                            ", expected one capture at a time, of a stream that was created"));
  }
  capture_ = std::make_unique<Recording>(*this, *stream, ++recordings_);
}

std::unique_ptr<Recording> StreamSet::end_capture(Stream* stream) {
  std::unique_ptr<Recording> recording;
  {
    const std::lock_guard lock(mutex_);
    if (capture_ == nullptr || capture_->origin() != stream) {
      throw InternalError(
          "capture: no capture began on this stream; end a capture on the stream "
          "on which it began");
    }
    recording = std::move(capture_);
  }
  recording->finish();
  return recording;
}

bool StreamSet::captures(const Stream* stream) const {
  const std::lock_guard lock(mutex_);
  return captures_locked(stream);
}

bool StreamSet::captures_locked(const Stream* stream) const {
  return capture_ != nullptr && capture_->has(*stream);
}

void StreamSet::refuse_in_capture(bool captured, const char* what) const {
  if (!captured) return;
  throw InternalError(
      cat("capture: ", what, ", expected no waiting by the host in work that is captured"));
}

// Runs work until finished() returns true. If no work can run, all of it waits for something
// outside of the process; then the function sleeps without the lock. Streams cannot block each
// other: the oldest item can always run, because a wait is queued after the record of its event.
template <typename Finished>
void StreamSet::run_until(std::unique_lock<std::mutex>& lock, Stream* wanted, Finished&& finished) {
  while (!finished()) {
    if (Stream* next = pick(wanted)) {
      run_front(*next);
      continue;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
}

bool StreamSet::empty() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->items_.empty(); });
}

bool StreamSet::is_first(const Stream& stream) const {
  return std::none_of(streams_.begin(), streams_.end(), [&](const auto& other) {
    return other->queue_ == stream.queue_ && !other->items_.empty() &&
           other->items_.front().number < stream.items_.front().number;
  });
}

Stream* StreamSet::pick(Stream* wanted) {
  std::vector<Stream*> able;
  for (const auto& stream : streams_) {
    if (stream->runnable()) able.push_back(stream.get());
  }
  if (able.empty()) return nullptr;
  switch (options_.order) {
    case Order::kRandom: return able[random_.below(able.size())];
    case Order::kLifo:
      if (wanted != nullptr && wanted->runnable()) return wanted;
      return able.back();
    case Order::kFifo: break;
  }
  return *std::min_element(able.begin(), able.end(), [](const Stream* a, const Stream* b) {
    return a->items_.front().number < b->items_.front().number;
  });
}

void StreamSet::run_front(Stream& stream) {
  const Stream::Item item = std::move(stream.items_.front());
  stream.items_.pop_front();
  if (item.event != nullptr) {
    if (!item.waits) item.event->done = true;
    return;
  }
  try {
    item.work();
  } catch (...) {
    if (!error_) error_ = std::current_exception();
    drop_all();
  }
}

void StreamSet::drop_all() {
  for (const auto& stream : streams_) {
    for (const Stream::Item& item : stream->items_) {
      if (item.event != nullptr) item.event->done = true;  // so that waiting threads do not hang
    }
    stream->items_.clear();
  }
}

void StreamSet::throw_error() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace shale::emulator
