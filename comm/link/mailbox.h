#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "shale/comm/link/pipe_link.h"

namespace shale::comm {

// One end of a link in host memory, without names, records or comparisons: slots that the sender
// fills and the receiver empties, in turn. Used by one thread at a time.
class Mailbox {
 public:
  virtual ~Mailbox() = default;

  // At the sender's end: where the next message's values go; null while all slots are full.
  virtual std::byte* room() = 0;
  // What has been written there is a message.
  virtual void put(const Message& message) = 0;
  // Whether the receiver has taken all there was.
  virtual bool all_taken() = 0;

  // At the receiver's end: the next message; null while there is none.
  virtual const Message* next() = 0;
  virtual const std::byte* values() const = 0;  // of next()
  virtual void take() = 0;                      // its slot is free again

  // Returns true when room() or next() has something, false after timeout_s (0: never). Calls
  // poll() now and then, which throws to give up.
  virtual bool wait(double timeout_s, const std::function<void()>& poll) = 0;

  // What the other end has told; empty: nothing. Only what ends the link's use is told.
  virtual std::string told() = 0;
  virtual void tell(const std::string& report) = 0;
  // The other end is gone, and there is nothing of it any more.
  virtual bool peer_left() = 0;
};

// A link of a group as this rank has it. mailbox: null where it is neither end.
struct LinkEnd {
  LinkOptions options;
  std::unique_ptr<Mailbox> mailbox;
};

}  // namespace shale::comm
