#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shale/base/view.h"
#include "shale/comm/fingerprint.h"
#include "shale/comm/traffic.h"
#include "shale/comm/work.h"

namespace shale::comm {

// Of activations, or of their gradients.
enum class Direction : uint8_t { kForward, kBackward };
std::string_view direction_name(Direction direction);  // "forward"

// Which message of a pipeline this is.
struct MessageId {
  int64_t step = 0;  // of training
  int32_t micro_batch = 0;
  int32_t chunk = 0;  // of the receiver's part of the model
  Direction direction = Direction::kForward;

  friend bool operator==(const MessageId&, const MessageId&) = default;
};

// What travels with the values, and what a receiver expects. Plain data: it is sent.
struct Message {
  MessageId id;
  int64_t count = 0;  // elements
  DType dtype = DType::kF32;

  int64_t bytes() const { return count * dtype_size(dtype); }
  friend bool operator==(const Message&, const Message&) = default;
};

std::string describe(const Message& message);  // "forward 7 of chunk 1 in step 12, bf16[4096]"

// A link from one rank of a group to another. There is one for each sender, receiver, direction and
// chunk of the receiver.
struct LinkSpec {
  int sender = 0;  // ranks of the group
  int receiver = 0;
  Direction direction = Direction::kForward;
  int chunk = 0;
  int64_t capacity_bytes = 0;  // of the longest message
  int slots = 1;               // messages that may wait to be taken; two hide the transfers

  friend bool operator==(const LinkSpec&, const LinkSpec&) = default;
};

// One end of a link, as its backend makes it.
struct LinkOptions {
  LinkSpec spec;
  bool sends = false;    // this end
  int sender_world = 0;  // ranks of the World, for messages
  int receiver_world = 0;
  std::string group_name = {};
  double timeout_s = 0;  // longest wait for the other end; 0: for ever
};

std::string link_name(const LinkOptions& options);  // "group 'pipeline': link 3 -> 4"
// A message as the lists of recent collectives show it: "link 3 -> 4: waits for forward 7 of ...".
Fingerprint fingerprint(const LinkOptions& options, const Message& message);
// "...: rank 3 sends forward 7 of chunk 1 in step 12, fp32[8], and rank 4 expects backward ..."
std::string mismatch(const LinkOptions& options, const Message& sent, const Message& expected);

// One end of a mailbox between two ranks, through which the stages of a pipeline pass activations
// and their gradients. Both ends know beforehand what is passed; the receiver compares.
//
// Messages of one link arrive in the order in which they were sent, and links do not order each
// other. Up to `slots` messages wait to be taken; a send beyond that waits for room. So whether a
// set of lists of sends and receives comes to its end depends on no rank's speed.
//
// An end is used by one thread at a time. Buffers belong to the link until wait() has returned, and
// each Work is waited for: a transfer that finds no room, or no message, goes on in wait() and in
// later calls on the same link. A message that is not the expected one is a CommError on both ends
// that names both and both messages; a wait of more than the time-out one that names the other end.
// After that the link cannot be used. Links are destroyed before their group.
//
// As in groups: `stream` is the caller's, of a device; what is queued there before a call produces
// the values or still uses the memory, what is queued after wait() finds the transfer done.
class PipeLink {
 public:
  virtual ~PipeLink() = default;
  PipeLink(const PipeLink&) = delete;
  PipeLink& operator=(const PipeLink&) = delete;

  const LinkOptions& options() const { return options_; }

  // x: contiguous, at most capacity_bytes, in memory of the group's device. After wait() x may be
  // dropped. Throws ShapeError for what does not fit, ConfigError at the receiver's end or for
  // another direction or chunk than the link's.
  Work send(const View& x, const MessageId& id, void* stream = nullptr);
  // The next message, whose count and dtype are `into`'s. May be called before it has been sent.
  Work receive(const View& into, const MessageId& id, void* stream = nullptr);

  // What is sent from now on counts there, as activations, and so does the time in wait().
  void account(std::shared_ptr<TrafficMeter> meter) { meter_ = std::move(meter); }

 protected:
  explicit PipeLink(LinkOptions options) : options_(std::move(options)) {}
  const std::shared_ptr<TrafficMeter>& meter() const { return meter_; }

  // Of arguments that have been checked; x is a vector.
  virtual Work pass(const View& x, const Message& message, void* stream) = 0;

 private:
  Message check(const char* what, bool sends, const View& x, const MessageId& id) const;

  LinkOptions options_;
  std::shared_ptr<TrafficMeter> meter_ = std::make_shared<TrafficMeter>();
};

}  // namespace shale::comm
