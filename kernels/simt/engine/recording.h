#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace shale::emulator {

class Stream;
class StreamSet;
struct Event;

// Work that was queued on streams while one of them, the origin, was captured. It can be replayed
// any number of times, like a CUDA graph. A stream joins the capture when it waits for an event of
// the capture. The origin must wait for the work of all streams that have joined. Made by a
// StreamSet.
class Recording {
 public:
  // id: not 0, and different for each recording.
  Recording(StreamSet& set, Stream& origin, uint64_t id) : set_(set), id_(id), branches_{&origin} {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  uint64_t id() const { return id_; }
  const Stream* origin() const { return branches_.front(); }
  bool has(const Stream& stream) const;

  void add_work(const Stream& stream, std::function<void()> work, std::function<bool()> ready = {});
  std::shared_ptr<Event> add_record(const Stream& stream);
  // Makes `stream` join the capture and wait for `event`. Throws InternalError for an event outside
  // this recording.
  void add_wait(Stream& stream, const Event& event);

  // Ends the recording. Throws InternalError if the origin did not wait for another stream's work.
  void finish();
  // Queues all recorded work: that of the origin on `stream`, that of the other streams on the
  // recording's own streams. It runs after all work queued on `stream` before, and before all work
  // queued there later.
  void replay(Stream& stream) const;

 private:
  enum class Kind : uint8_t { kWork, kRecord, kWait };
  struct Item {
    size_t branch = 0;  // index in branches_
    Kind kind = Kind::kWork;
    std::shared_ptr<const std::function<void()>> work{};  // queued copies may outlive the recording
    std::function<bool()> ready{};
    size_t event = 0;
  };
  size_t branch_of(const Stream& stream) const;
  void check_joined() const;

  StreamSet& set_;
  uint64_t id_;
  std::vector<Stream*> branches_;  // origin first; finish() replaces the other streams by its own
  bool finished_ = false;
  std::vector<Item> items_{};  // in order of recording
  size_t events_ = 0;
};

}  // namespace shale::emulator
