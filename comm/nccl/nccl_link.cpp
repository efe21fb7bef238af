#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/collective_slices.h"
#include "shale/comm/nccl/nccl_link_internal.h"
#include "shale/comm/work_state.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

LinkOptions with_spec(LinkOptions options, const LinkSpec& spec) {
  options.spec = spec;
  return options;
}

}  // namespace

// Sends the headers of messages separately. The receiver takes a header when the message has
// arrived. The sender then knows that it may end the link.
class NcclLink::Labels {
 public:
  explicit Labels(LinkEnd end)
      : options_(std::move(end.options)), mailbox_(std::move(end.mailbox)) {}

  // Sender: waits until fewer than kAhead headers are sent and not yet taken.
  void send(const Message& message, const std::function<void()>& poll) {
    const Clock::time_point start = Clock::now();
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (mailbox_->room() != nullptr) return mailbox_->put(message);
      }
      poll();
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (options_.timeout_s > 0 && waited.count() > options_.timeout_s) {
        throw CommError(cat(link_name(options_), ": rank ", options_.sender_world, " waited ",
                            options_.timeout_s, " s for rank ", options_.receiver_world,
                            " to receive one of the ", kAhead, " messages before ",
                            comm::describe(message)));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // Receiver: adds an expected message.
  void expect(const Message& message, std::shared_ptr<const NcclWatchdog::Launch> launch) {
    const std::lock_guard lock(mutex_);
    expected_.push_back({message, std::move(launch)});
  }
  // Compares arrived headers with expected ones, and checks for a report from the peer. Throws
  // CommError.
  void look() {
    const std::lock_guard lock(mutex_);
    if (const std::string report = mailbox_->told(); !report.empty()) throw CommError(report);
    if (options_.sends) return;
    for (; !expected_.empty(); expected_.pop_front()) {
      const Message* const sent = mailbox_->next();
      if (sent == nullptr) return;
      const Expected& first = expected_.front();
      if (*sent != first.message) {
        const std::string report = mismatch(options_, *sent, first.message);
        mailbox_->tell(report);
        throw CommError(report);
      }
      if (!first.launch->done()) return;
      mailbox_->take();
    }
  }
  // True if all messages have arrived.
  bool settled() {
    const std::lock_guard lock(mutex_);
    return options_.sends ? mailbox_->all_taken() : expected_.empty();
  }

 private:
  struct Expected {
    Message message;
    std::shared_ptr<const NcclWatchdog::Launch> launch;
  };
  LinkOptions options_;
  std::mutex mutex_;  // both the caller's and the watchdog's thread lock it
  std::unique_ptr<Mailbox> mailbox_;
  std::deque<Expected> expected_;
};

class NcclLink::Passing final : public WorkState {
 public:
  Passing(std::shared_ptr<NcclWatchdog> watchdog, std::shared_ptr<const DeviceEvent> finished,
          void* stream, ReservedSms::Hold held)
      : watchdog_(std::move(watchdog)),
        finished_(std::move(finished)),
        stream_(stream),
        held_(std::move(held)) {}

  bool done() const override { return finished_->done(); }
  void wait() override {
    held_.release();
    watchdog_->check();
    finished_->hold(stream_);
  }
  void hold(void* stream) override { finished_->hold(stream); }
  void give_up() override {
    watchdog_->fail(std::make_exception_ptr(
        CommError("given up, because an exception ended the scope of the operation")));
  }

 private:
  std::shared_ptr<NcclWatchdog> watchdog_;
  std::shared_ptr<const DeviceEvent> finished_;
  void* stream_;
  ReservedSms::Hold held_;
};

NcclLink::NcclLink(std::shared_ptr<WorldContext> context, LinkEnd end, const LinkSpec& spec,
                   std::unique_ptr<NcclComm> comm, DeviceBackend& device,
                   std::shared_ptr<DeviceStream> stream)
    : PipeLink(with_spec(end.options, spec)),
      context_(std::move(context)),
      device_(device),
      stream_(std::move(stream)),
      planned_(device.held(), kCtas, stream_->get(), /*planned=*/true),
      labels_(std::make_shared<Labels>(std::move(end))),
      comm_(std::move(comm)) {
  watchdog_ = std::make_shared<NcclWatchdog>(*comm_, nullptr, context_->recent,
                                             [labels = labels_] { labels->look(); });
  connect();
}

// Sends a first message here, because it connects the two ends, and both ends make this call
// together. Later, the ends of a pipeline schedule may not launch at the same time, and a launch
// that connects could wait for ever.
void NcclLink::connect() {
  struct Byte {
    MemoryProvider& provider;
    void* data = provider.allocate(1);
    ~Byte() { provider.free(data, 1); }
  };
  const Byte byte{device_.memory()};
  std::shared_ptr<const NcclWatchdog::Launch> noted;
  launch(make_view(byte.data, DType::kU8, {1}),
         {.id = {.step = -1}, .count = 1, .dtype = DType::kU8}, noted);
  device_.synchronize(stream_->get());
  watchdog_->check();
}

NcclLink::~NcclLink() {
  try {
    if (std::uncaught_exceptions() > 0) throw CommError(cat(link_name(options()), ": given up"));
    device_.synchronize(stream_->get());  // the watchdog ends kernels that would never finish
    const Clock::time_point start = Clock::now();
    while (!labels_->settled()) {
      watchdog_->check();
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (options().timeout_s > 0 && waited.count() > options().timeout_s) {
        throw CommError(cat(link_name(options()), ": destroyed before all messages had arrived"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception& error) {
    if (std::uncaught_exceptions() == 0) log_warning("nccl: ", error.what());
    watchdog_->fail(std::current_exception());
  }
  watchdog_->stop(/*together=*/false);
}

Work NcclLink::pass(const View& x, const Message& message, void* stream) {
  watchdog_->check();
  if (device_.captures(stream)) {
    throw CommError(cat(link_name(options()), ": messages of links cannot be captured"));
  }
  DeviceEvent(device_, stream).hold(stream_->get());
  if (options().sends) labels_->send(message, [this] { watchdog_->check(); });
  std::shared_ptr<const NcclWatchdog::Launch> noted;
  auto finished = launch(x, message, noted);
  if (!options().sends) labels_->expect(message, std::move(noted));
  return Work(std::make_shared<Passing>(watchdog_, std::move(finished), stream,
                                        ReservedSms::Hold(device_.held(), kCtas, stream_->get())));
}

std::shared_ptr<const DeviceEvent> NcclLink::launch(
    const View& x, const Message& message, std::shared_ptr<const NcclWatchdog::Launch>& noted) {
  const Fingerprint print = fingerprint(options(), message);
  const auto launch = watchdog_->begin(print, message.bytes());
  std::shared_ptr<const DeviceEvent> finished;
  DeviceSlice slice(context_->timeline, stream_->get());
  try {
    // In the link's communicator, the sender is rank 0 and the receiver rank 1.
    comm_->pass(x, options().sends, options().sends ? 1 : 0, stream_->get());
    finished = std::make_shared<const DeviceEvent>(device_, stream_->get());
  } catch (...) {
    launch->queued(nullptr);
    watchdog_->check();  // throws the reason if the communicator was aborted
    throw;
  }
  slice.end(options().group_name, print, message.bytes(), /*first_rank=*/0, context_->rank);
  launch->queued(finished);
  noted = launch;
  return finished;
}

}  // namespace shale::comm
