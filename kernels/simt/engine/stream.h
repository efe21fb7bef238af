#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "shale/kernels/simt/engine/global_memory.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/kernels/simt/engine/recording.h"
#include "shale/kernels/simt/engine/run_queue.h"

namespace shale::emulator {

class StreamSet;

// A point in a stream that other streams and the host can wait for. Recorded once.
struct Event {
  bool done = false;
  uint64_t recording = 0;  // not 0: recorded in that Recording; `done` stays false
  size_t number = 0;       // number of the event in that recording
};

// A queue of deferred work. Made and owned by a StreamSet.
class Stream {
 public:
  const Options& options() const { return options_; }
  GlobalMemory& memory();  // global memory of the device
  void enqueue(std::function<void()> work);
  // Queues work that waits, without blocking the host, until `ready` returns true. `ready` tells
  // whether something outside of this process has happened, for example in another rank. It must
  // not use streams.
  void enqueue_when(std::function<bool()> ready, std::function<void()> work);
  // Runs the next item of work of any stream, as a GPU does beside the host. Returns false if none
  // can run.
  bool advance();
  // Call the functions of StreamSet with these names.
  void synchronize();
  void drain() noexcept;

 private:
  friend class StreamSet;
  struct Item {
    uint64_t number = 0;           // position in the order of calls over all streams
    std::function<void()> work{};  // null: the item waits for or records an event
    std::function<bool()> ready{};
    std::shared_ptr<Event> event{};
    bool waits = false;  // true: waits for the event; false: records it
  };
  Stream(StreamSet& set, const Options& options, size_t queue)
      : set_(set), options_(options), queue_(queue) {}
  bool runnable() const;

  StreamSet& set_;
  Options options_;
  std::deque<Item> items_{};
  size_t queue_;  // its hardware queue
};

// The streams of a device. Work runs when a host thread waits for some of it, on that thread, and
// only as far as needed. options.order decides which other work runs before: kFifo runs work in the
// order of calls, kLifo only what is needed, kRandom what a seed decides. So a missing wait between
// streams, or reuse of memory that is still in use, shows as wrong results. If options.queues is
// set, streams share hardware queues; streams that wait for each other behind one queue hang, as on
// a GPU. Thread-safe.
//
// An error stops the device, as on a GPU: queued work is dropped, and the next wait throws the
// error.
//
// While a stream is captured, its work is recorded instead of queued. As on a GPU, the host must
// not wait for the stream or query its events then: both throw InternalError.
class StreamSet {
 public:
  explicit StreamSet(const Options& options) : options_(options), random_(options.seed) {}

  GlobalMemory& memory() { return memory_; }
  Stream* create();
  void destroy(Stream* stream) noexcept;  // destroys it after its work has run
  void synchronize(Stream* stream);       // null: synchronizes all streams
  void drain() noexcept;                  // runs all work; the next synchronize() throws its error
  std::shared_ptr<Event> record(Stream* stream);
  void wait(Stream* stream, const std::shared_ptr<Event>& event);
  // A query also runs some work; otherwise a polling loop would never end.
  bool done(const Event& event);
  void synchronize(const Event& event);

  // Starts a capture. Throws InternalError if a capture is active already, or if `stream` is null.
  void begin_capture(Stream* stream);
  // Ends the capture. Throws InternalError unless the capture began with `stream`, and the errors
  // of Recording::finish(); the capture ends in any case.
  std::unique_ptr<Recording> end_capture(Stream* stream);
  bool captures(const Stream* stream) const;

 private:
  friend class Stream;
  void push(Stream& stream, Stream::Item item);
  bool captures_locked(const Stream* stream) const;
  void refuse_in_capture(bool captured, const char* what) const;
  template <typename Finished>
  void run_until(std::unique_lock<std::mutex>& lock, Stream* wanted, Finished&& finished);
  bool empty() const;  // no stream has work
  bool is_first(const Stream& stream) const;
  Stream* pick(Stream* wanted);
  void run_front(Stream& stream);
  void drop_all();
  void throw_error();

  const Options options_;
  GlobalMemory memory_;
  mutable std::mutex mutex_;
  SeededRandom random_;
  uint64_t next_number_ = 0;
  size_t created_ = 0;
  uint64_t recordings_ = 0;
  std::unique_ptr<Recording> capture_{};  // null: no capture is active
  std::vector<std::unique_ptr<Stream>> streams_{};
  std::exception_ptr error_{};
};

}  // namespace shale::emulator
