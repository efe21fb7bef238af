#include "shale/comm/link/host_link.h"

#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/work_state.h"

namespace shale::comm {

// Unfinished transfers of one end, in call order.
class HostLink::Queue {
 public:
  Queue(std::shared_ptr<WorldContext> context, LinkEnd end)
      : context_(std::move(context)),
        options_(std::move(end.options)),
        mailbox_(std::move(end.mailbox)) {}

  void add(std::shared_ptr<Transfer> transfer) { waiting_.push_back(std::move(transfer)); }
  // Finishes the transfers that can finish without waiting.
  void advance() noexcept;
  void wait_for(const Transfer& transfer, const std::shared_ptr<TrafficMeter>& meter);
  void check() const;
  void give_up(const std::string& reason) noexcept;
  void close();

 private:
  bool pass_first();  // false: the first transfer must wait
  void poll(const Message& message);
  std::string own_rank() const;
  std::string other_rank() const;

  std::shared_ptr<WorldContext> context_;
  LinkOptions options_;
  std::unique_ptr<Mailbox> mailbox_;
  std::deque<std::shared_ptr<Transfer>> waiting_;
  std::exception_ptr failure_;
  std::string reason_;     // message of the failure
  bool recorded_ = false;  // the first transfer is already in the list of recent collectives
};

class HostLink::Transfer final : public WorkState {
 public:
  Transfer(std::shared_ptr<Queue> queue, std::shared_ptr<TrafficMeter> meter, const View& x,
           const Message& message)
      : queue_(std::move(queue)), meter_(std::move(meter)), view_(x), message_(message) {}

  bool done() const override {
    if (!done_) queue_->advance();
    return done_;
  }
  void wait() override {
    if (!done_ || error_) queue_->wait_for(*this, meter_);
  }
  // Only this thread makes transfers, so nothing touches the buffers after this call.
  void give_up() override { queue_->give_up("given up, because an exception ended its use"); }

  const View& view() const { return view_; }
  const Message& message() const { return message_; }
  bool ended() const { return done_; }
  bool failed() const { return error_; }
  void finish(bool error) {
    done_ = true;
    error_ = error;
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<TrafficMeter> meter_;
  View view_;
  Message message_;
  bool done_ = false;
  bool error_ = false;  // true: the transfer failed with the queue's exception
};

std::string HostLink::Queue::own_rank() const {
  return context_->places.list({options_.sends ? options_.sender_world : options_.receiver_world});
}

std::string HostLink::Queue::other_rank() const {
  return context_->places.list({options_.sends ? options_.receiver_world : options_.sender_world});
}

bool HostLink::Queue::pass_first() {
  Transfer& first = *waiting_.front();
  const auto bytes = static_cast<size_t>(first.message().bytes());
  std::optional<RecentCollectives::Scope> record;
  const auto begin = [&] {
    if (recorded_) return;
    record.emplace(context_->recent, options_.group_name, fingerprint(options_, first.message()),
                   first.message().bytes());
  };
  if (options_.sends) {
    std::byte* const room = mailbox_->room();
    if (room == nullptr) return false;
    begin();
    if (bytes > 0) std::memcpy(room, first.view().data, bytes);
    mailbox_->put(first.message());
  } else {
    const Message* const arrived = mailbox_->next();
    if (arrived == nullptr) return false;
    begin();
    if (*arrived != first.message()) {
      const std::string report = mismatch(options_, *arrived, first.message());
      mailbox_->tell(report);
      throw CommError(report);
    }
    if (bytes > 0) std::memcpy(first.view().data, mailbox_->values(), bytes);
    mailbox_->take();
  }
  first.finish(/*error=*/false);
  return true;
}

void HostLink::Queue::advance() noexcept {
  try {
    while (!failure_ && !waiting_.empty() && pass_first()) waiting_.pop_front();
  } catch (const std::exception& error) {
    failure_ = std::current_exception();
    reason_ = error.what();
  }
  if (!failure_) return;
  const auto ended = std::exchange(waiting_, {});
  for (const auto& transfer : ended) transfer->finish(/*error=*/true);
}

void HostLink::Queue::check() const {
  if (!failure_) return;
  context_->board.check();  // throws that rank's error if another rank failed
  throw CommError(cat(link_name(options_), " cannot be used any more: ", reason_));
}

void HostLink::Queue::give_up(const std::string& reason) noexcept {
  if (!failure_) {
    reason_ = reason;
    failure_ = std::make_exception_ptr(CommError(cat(link_name(options_), ": ", reason)));
  }
  advance();
}

// Called repeatedly while a transfer waits for `message`. Throws if the wait cannot succeed.
void HostLink::Queue::poll(const Message& message) {
  context_->board.check();
  if (const std::string report = mailbox_->told(); !report.empty()) throw CommError(report);
  if (!mailbox_->peer_left()) return;
  throw CommError(cat(link_name(options_), ": ", other_rank(), " has left while ", own_rank(),
                      options_.sends ? " waits for a free buffer for " : " waits for ",
                      comm::describe(message)));
}

void HostLink::Queue::wait_for(const Transfer& transfer,
                               const std::shared_ptr<TrafficMeter>& meter) {
  advance();
  while (!transfer.ended()) {
    const Message message = waiting_.front()->message();
    const FlightScope flight(meter);
    const RecentCollectives::Scope record(context_->recent, options_.group_name,
                                          fingerprint(options_, message), message.bytes());
    recorded_ = true;
    try {
      const auto poll_here = [&] { poll(message); };
      const double limit_s = context_->signs.limit(options_.timeout_s);
      if (!mailbox_->wait(limit_s, poll_here)) {
        context_->signs.wait_for_all(poll_here);
        throw CommError(cat(link_name(options_), ": ", own_rank(), " waited ", limit_s, " s for ",
                            options_.sends ? "a free buffer for " : "", comm::describe(message),
                            options_.sends
                                ? cat(", but ", other_rank(), " has not received earlier messages")
                                : cat(", which ", other_rank(), " does not send")));
      }
      if (pass_first()) waiting_.pop_front();
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      reason_ = error.what();
    }
    recorded_ = false;
    advance();
  }
  if (transfer.failed()) std::rethrow_exception(failure_);
}

// Makes unfinished transfers fail, because works may outlive the link.
void HostLink::Queue::close() {
  give_up("closed before the caller waited for all transfers");
  mailbox_.reset();
}

HostLink::HostLink(std::shared_ptr<WorldContext> context, LinkEnd end) : PipeLink(end.options) {
  queue_ = std::make_shared<Queue>(std::move(context), std::move(end));
}

HostLink::~HostLink() {
  queue_->close();
}

Work HostLink::pass(const View& x, const Message& message, void*) {
  queue_->check();
  auto transfer = std::make_shared<Transfer>(queue_, meter(), x, message);
  queue_->add(transfer);
  queue_->advance();
  return Work(std::move(transfer));
}

}  // namespace shale::comm
