#include "shale/kernels/simt/engine/recording.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/simt/engine/stream.h"

namespace shale::emulator {

Recording::~Recording() {
  if (!finished_) return;
  for (size_t i = 1; i < branches_.size(); ++i) set_.destroy(branches_[i]);
}

bool Recording::has(const Stream& stream) const {
  return std::find(branches_.begin(), branches_.end(), &stream) != branches_.end();
}

size_t Recording::branch_of(const Stream& stream) const {
  const auto found = std::find(branches_.begin(), branches_.end(), &stream);
  return static_cast<size_t>(found - branches_.begin());
}

void Recording::add_work(const Stream& stream, std::function<void()> work,
                         std::function<bool()> ready) {
  items_.push_back({.branch = branch_of(stream),
                    .kind = Kind::kWork,
                    .work = std::make_shared<const std::function<void()>>(std::move(work)),
                    .ready = std::move(ready)});
}

std::shared_ptr<Event> Recording::add_record(const Stream& stream) {
  items_.push_back({.branch = branch_of(stream), .kind = Kind::kRecord, .event = events_});
  return std::make_shared<Event>(Event{.done = false, .recording = id_, .number = events_++});
}

void Recording::add_wait(Stream& stream, const Event& event) {
  if (event.recording != id_) {
    throw InternalError(
        "capture: a captured stream waits for an event that was recorded outside of the capture, "
        "expected an event of the capture; leave the wait out, because the graph runs after all "
        "earlier work");
  }
  if (!has(stream)) branches_.push_back(&stream);
  items_.push_back({.branch = branch_of(stream), .kind = Kind::kWait, .event = event.number});
}

void Recording::finish() {
  check_joined();
  for (size_t i = 1; i < branches_.size(); ++i) branches_[i] = set_.create();
  finished_ = true;
}

// Throws InternalError if the origin does not wait for all recorded work. Walks from the last call
// to the first. A stream has joined as soon as the walk meets an event of it for which a joined
// stream waits later. All earlier work of that stream is then waited for.
void Recording::check_joined() const {
  std::vector<bool> joined(branches_.size()), wanted(events_);
  joined.front() = true;
  for (size_t i = items_.size(); i-- > 0;) {
    const Item& item = items_[i];
    if (item.kind == Kind::kRecord && wanted[item.event]) joined[item.branch] = true;
    if (item.kind == Kind::kWait && joined[item.branch]) wanted[item.event] = true;
    if (item.kind == Kind::kWork && !joined[item.branch]) {
      throw InternalError(
          "capture: another stream joined the capture and has work that the captured stream does "
          "not wait for; make the captured stream wait for an event of that stream first");
    }
  }
}

void Recording::replay(Stream& stream) const {
  std::vector<std::shared_ptr<Event>> events(events_);
  for (const Item& item : items_) {
    Stream& place = item.branch == 0 ? stream : *branches_[item.branch];
    switch (item.kind) {
      case Kind::kWork: place.enqueue_when(item.ready, [work = item.work] { (*work)(); }); break;
      case Kind::kRecord: events[item.event] = set_.record(&place); break;
      case Kind::kWait: set_.wait(&place, events[item.event]); break;
    }
  }
}

}  // namespace shale::emulator
