#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace shale::emulator {

class Stream;
class StreamSet;
struct Event;

// What streams were given while one of them, the origin, was captured: to be given to streams again
// any number of times, as a CUDA graph is. A stream joins the capture by waiting for an event of
// it, and the origin has to wait for what the others did. Made by a StreamSet.
class Recording {
 public:
  // id: not 0, another one for each recording.
  Recording(StreamSet& set, Stream& origin, uint64_t id) : set_(set), id_(id), branches_{&origin} {}
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  uint64_t id() const { return id_; }
  const Stream* origin() const { return branches_.front(); }
  bool has(const Stream& stream) const;

  void add_work(const Stream& stream, std::function<void()> work);
  std::shared_ptr<Event> add_record(const Stream& stream);
  // `stream` joins. Throws InternalError for an event of another recording, or of none.
  void add_wait(Stream& stream, const Event& event);

  // Ends the recording. Throws InternalError if the origin did not wait for another stream's work.
  void finish();
  // Queues all of it: the origin's part on `stream`, the others' on streams of its own. What was
  // queued on `stream` before comes before all of it, what is queued later after all of it.
  void replay(Stream& stream) const;

 private:
  enum class Kind : uint8_t { kWork, kRecord, kWait };
  struct Item {
    size_t branch = 0;  // in branches_
    Kind kind = Kind::kWork;
    std::shared_ptr<const std::function<void()>> work{};  // queues may outlive the recording
    size_t event = 0;
  };
  size_t branch_of(const Stream& stream) const;
  void check_joined() const;

  StreamSet& set_;
  uint64_t id_;
  std::vector<Stream*> branches_;  // the origin is first; from finish() on the others are its own
  bool finished_ = false;
  std::vector<Item> items_{};  // in the order of calls
  size_t events_ = 0;
};

}  // namespace shale::emulator
