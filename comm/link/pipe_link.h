#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shale/base/view.h"
#include "shale/comm/fingerprint.h"
#include "shale/comm/traffic.h"
#include "shale/comm/work.h"

namespace shale::comm {

// Direction of activations, or of their gradients.
enum class Direction : uint8_t { kForward, kBackward };
std::string_view direction_name(Direction direction);  // "forward"

// Identifies a message of a pipeline.
struct MessageId {
  int64_t step = 0;  // training step
  int32_t micro_batch = 0;
  int32_t chunk = 0;  // model chunk of the receiver
  Direction direction = Direction::kForward;

  friend bool operator==(const MessageId&, const MessageId&) = default;
};

// Header of a message, which the receiver compares with what it expects. Plain data: it is sent.
struct Message {
  MessageId id;
  int64_t count = 0;  // number of elements
  DType dtype = DType::kF32;

  int64_t bytes() const { return count * dtype_size(dtype); }
  friend bool operator==(const Message&, const Message&) = default;
};

std::string describe(const Message& message);  // "forward 7 of chunk 1 in step 12, bf16[4096]"

// Link from one rank of a group to another. There is one for each sender, receiver, direction and
// receiver chunk.
struct LinkSpec {
  int sender = 0;  // rank in the group
  int receiver = 0;
  Direction direction = Direction::kForward;
  int chunk = 0;
  int64_t capacity_bytes = 0;  // size of the longest message
  int slots = 1;  // maximum number of unread messages; two let transfers overlap computation

  friend bool operator==(const LinkSpec&, const LinkSpec&) = default;
};

// Options of one end of a link, set by its backend.
struct LinkOptions {
  LinkSpec spec;
  bool sends = false;    // true: this end is the sender
  int sender_world = 0;  // World rank of the sender
  int receiver_world = 0;
  std::string group_name = {};
  double timeout_s = 0;  // longest wait for the other end; 0: no limit
};

std::string link_name(const LinkOptions& options);  // "group 'pipeline': link 3 -> 4"
// Entry for the lists of recent collectives: "link 3 -> 4: waits for forward 7 of ...".
Fingerprint fingerprint(const LinkOptions& options, const Message& message);
// Describes the two messages: "...: rank 3 sends forward 7 of chunk 1 ..., and rank 4 expects ..."
std::string mismatch(const LinkOptions& options, const Message& sent, const Message& expected);

// One end of a link between two ranks, through which pipeline stages exchange activations and their
// gradients. Both ends know in advance which messages come; the receiver checks what arrives.
//
// Messages of one link arrive in the order in which they were sent; different links are
// independent. Up to `slots` messages may be unread; a further send waits. Therefore the speed of
// the ranks does not decide whether a schedule of sends and receives deadlocks.
//
// Only one thread at a time may use a link. Buffers belong to the link until wait() has returned,
// and each Work must be waited for. A transfer that cannot finish at once continues in wait() and
// in later calls on the same link. An unexpected message throws CommError on both ends, naming both
// ranks and both messages. A wait beyond the time-out throws a CommError that names the other end.
// The link is unusable afterwards. Destroy links before their group.
//
// `stream` is the caller's device stream, as in groups. Work that was queued on it before the call
// may produce the values or still use the memory. Work that is queued after wait() finds the
// transfer done.
class PipeLink {
 public:
  virtual ~PipeLink() = default;
  PipeLink(const PipeLink&) = delete;
  PipeLink& operator=(const PipeLink&) = delete;

  const LinkOptions& options() const { return options_; }

  // x: contiguous, at most capacity_bytes, in memory of the group's device; may be freed after
  // wait(). Throws ShapeError for a wrong size. Throws ConfigError on the receiver's end, and if
  // `id` has another direction or chunk than the link.
  Work send(const View& x, const MessageId& id, void* stream = nullptr);
  // Receives the next message, which must have `into`'s count and dtype. May be called before the
  // other end calls send().
  Work receive(const View& into, const MessageId& id, void* stream = nullptr);

  // From now on, adds to `meter` the bytes of sent messages, as activations, and the time in
  // wait().
  void account(std::shared_ptr<TrafficMeter> meter) { meter_ = std::move(meter); }

 protected:
  explicit PipeLink(LinkOptions options) : options_(std::move(options)) {}
  const std::shared_ptr<TrafficMeter>& meter() const { return meter_; }

  // Transfers x, a vector; arguments have been checked.
  virtual Work pass(const View& x, const Message& message, void* stream) = 0;

 private:
  Message check(const char* what, bool sends, const View& x, const MessageId& id) const;

  LinkOptions options_;
  std::shared_ptr<TrafficMeter> meter_ = std::make_shared<TrafficMeter>();
};

}  // namespace shale::comm
