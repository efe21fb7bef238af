#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "shale/comm/link/pipe_link.h"

namespace shale::comm {

// One end of a link in host memory: slots for messages, which the sender fills and the receiver
// empties in order. Does not check the messages; the link does. One thread at a time may use it.
class Mailbox {
 public:
  virtual ~Mailbox() = default;

  // Sender: returns memory for the values of the next message; null while all slots are full.
  virtual std::byte* room() = 0;
  // Sender: sends the values written to room() as a message.
  virtual void put(const Message& message) = 0;
  // Sender: returns true if the receiver has taken all messages.
  virtual bool all_taken() = 0;

  // Receiver: returns the header of the next message; null if none has arrived.
  virtual const Message* next() = 0;
  virtual const std::byte* values() const = 0;  // values of the message next()
  virtual void take() = 0;                      // frees the slot of next()

  // Returns true when room() or next() has something, false after timeout_s (0: no limit). Calls
  // poll() repeatedly, which throws to give up.
  virtual bool wait(double timeout_s, const std::function<void()>& poll) = 0;

  // Returns the error report that the other end has sent with tell(); empty: none. The link cannot
  // be used after a report.
  virtual std::string told() = 0;
  virtual void tell(const std::string& report) = 0;
  // Returns true if the other end has left and all its messages have been taken.
  virtual bool peer_left() = 0;
};

// A group's link on this rank. mailbox: null if the rank is at neither end.
struct LinkEnd {
  LinkOptions options;
  std::unique_ptr<Mailbox> mailbox;
};

}  // namespace shale::comm
