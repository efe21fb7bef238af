#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/mpi/mpi_mailbox_internal.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Space for the message header; the values start at a cache line.
constexpr size_t kHeaderBytes = (sizeof(Message) + 63) / 64 * 64;
// Interval of the calls that let MPI make progress: 2% of the time to send 10 MB at 1 GB/s.
constexpr std::chrono::microseconds kProgress{200};
// No message has this tag. Probing for it only lets MPI make progress.
constexpr int kNoTag = 32766;

int64_t message_bytes(const LinkSpec& spec) {
  return static_cast<int64_t>(kHeaderBytes) + spec.capacity_bytes;
}

}  // namespace

// ---- Progress ----

void MpiLinks::begin_use() {
  if (++users_ == 1) thread_ = std::thread([this] { thread_main(); });
}

void MpiLinks::end_use() {
  if (--users_ == 0) stop();
}

void MpiLinks::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  stop_ = false;
}

void MpiLinks::thread_main() {
  while (!stop_.load(std::memory_order_relaxed)) {
    int found = 0;
    // Ignore the result: errors also show in the transfers, which are checked.
    MPI_Iprobe(MPI_ANY_SOURCE, kNoTag, comm_.get(), &found, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(kProgress);
  }
}

// ---- One end ----

void MpiMailbox::check_capacity(const LinkSpec& spec) {
  constexpr int64_t kLongest = std::numeric_limits<int>::max();
  if (message_bytes(spec) <= kLongest) return;
  throw ConfigError(cat("links between nodes: capacity_bytes is ", spec.capacity_bytes,
                        ", expected at most ", kLongest - static_cast<int64_t>(kHeaderBytes)));
}

MpiMailbox::MpiMailbox(std::shared_ptr<WorldContext> context, std::shared_ptr<MpiLinks> links,
                       int peer, int tag, const LinkOptions& options)
    : context_(std::move(context)),
      links_(std::move(links)),
      peer_(peer),
      tag_(tag),
      options_(options) {
  check_capacity(options_.spec);
  slots_.resize(static_cast<size_t>(options_.spec.slots));
  for (Slot& slot : slots_) {
    slot.data = std::make_unique_for_overwrite<std::byte[]>(
        static_cast<size_t>(message_bytes(options_.spec)));
    if (!options_.sends) post_receive(slot);
  }
  post_answer();
  links_->begin_use();
}

MpiMailbox::~MpiMailbox() {
  bool together = std::uncaught_exceptions() == 0, gone = false;
  try {
    if (together) together = meet_receiver();
    gone = let_go();
  } catch (const std::exception& error) {
    log_warning(error.what());
    together = false;
  }
  links_->end_use();
  // Keeps the communicator: messages may still be in transit in it.
  if (!together) context_->kept.push_back(links_);
  if (gone) return;
  context_->requests_pending = true;
  context_->kept.push_back(buffers_);
}

// Waits until the receiver has taken all messages. Returns false after a failure.
bool MpiMailbox::meet_receiver() {
  const Clock::time_point start = Clock::now();
  while (options_.sends && told_.empty() && !all_taken()) {
    context_->board.check();
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (options_.timeout_s > 0 && waited.count() > options_.timeout_s) {
      throw CommError(cat(link_name(options_), ": rank ", options_.receiver_world,
                          " has not received all messages after ", options_.timeout_s, " s"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return told_.empty() && buffers_->report.empty();
}

bool MpiMailbox::let_go() {
  constexpr std::chrono::seconds kWayOut{1};
  std::vector<MPI_Request> requests = {answer_request_};
  for (const Slot& slot : slots_) {
    if (!options_.sends && !slot.arrived) requests.push_back(slot.request);
  }
  for (MPI_Request& request : requests) {
    if (request != MPI_REQUEST_NULL) check_mpi(MPI_Cancel(&request), "MPI_Cancel");
  }
  if (options_.sends) {
    for (const Slot& slot : slots_) requests.push_back(slot.request);
  }
  requests.push_back(report_request_);
  const Clock::time_point end = Clock::now() + kWayOut;
  for (int done = 0;;) {
    check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done != 0) return true;
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void MpiMailbox::post_receive(Slot& slot) {
  slot.arrived = false;
  check_mpi(MPI_Irecv(slot.data.get(), static_cast<int>(message_bytes(options_.spec)), MPI_BYTE,
                      peer_, tag_, links_->comm(), &slot.request),
            "MPI_Irecv");
}

// Posts the receive of the next answer, which may contain a report that ends the link.
void MpiMailbox::post_answer() {
  check_mpi(MPI_Irecv(buffers_->answer.data(), static_cast<int>(kAnswerBytes), MPI_BYTE, peer_,
                      tag_ + 1, links_->comm(), &answer_request_),
            "MPI_Irecv");
}

void MpiMailbox::take_answers() {
  while (answer_request_ != MPI_REQUEST_NULL) {
    int done = 0, bytes = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&answer_request_, &done, &status), "MPI_Test");
    if (done == 0) return;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes > 0) {  // the answer is a report, and the last one
      told_.assign(buffers_->answer.data(), static_cast<size_t>(bytes));
      return;
    }
    ++answered_;
    post_answer();
  }
}

std::byte* MpiMailbox::room() {
  take_answers();
  if (passed_ - answered_ >= slots_.size()) return nullptr;
  return slot(passed_).data.get() + kHeaderBytes;
}

// The receiver has taken the previous message of this slot, so the slot can be overwritten.
// MPI_Wait returns soon.
void MpiMailbox::put(const Message& message) {
  Slot& next = slot(passed_++);
  check_mpi(MPI_Wait(&next.request, MPI_STATUS_IGNORE), "MPI_Wait");
  std::memcpy(next.data.get(), &message, sizeof message);
  check_mpi(
      MPI_Isend(next.data.get(), static_cast<int>(kHeaderBytes) + static_cast<int>(message.bytes()),
                MPI_BYTE, peer_, tag_, links_->comm(), &next.request),
      "MPI_Isend");
}

bool MpiMailbox::all_taken() {
  take_answers();
  return passed_ == answered_;
}

const Message* MpiMailbox::next() {
  Slot& first = slot(passed_);
  if (!first.arrived) {
    int done = 0;
    check_mpi(MPI_Test(&first.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return nullptr;
    first.arrived = true;
  }
  return reinterpret_cast<const Message*>(first.data.get());
}

const std::byte* MpiMailbox::values() const {
  return slots_[passed_ % slots_.size()].data.get() + kHeaderBytes;
}

void MpiMailbox::take() {
  post_receive(slot(passed_++));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, peer_, tag_ + 1, links_->comm(), &request),
            "MPI_Isend");
  check_mpi(MPI_Request_free(&request), "MPI_Request_free");
}

bool MpiMailbox::ready() {
  return options_.sends ? room() != nullptr : next() != nullptr;
}

bool MpiMailbox::wait(double timeout_s, const std::function<void()>& poll) {
  const Clock::time_point start = Clock::now();
  for (int tries = 0; !ready(); ++tries) {
    if (tries < 100) {
      sched_yield();
      continue;
    }
    poll();
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (timeout_s > 0 && waited.count() > timeout_s) return false;
    // MPI makes progress only inside its calls, so the sleep is short.
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

std::string MpiMailbox::told() {
  take_answers();
  return told_;
}

void MpiMailbox::tell(const std::string& report) {
  if (!buffers_->report.empty()) return;
  buffers_->report = report.substr(0, kAnswerBytes);
  check_mpi(MPI_Isend(buffers_->report.data(), static_cast<int>(buffers_->report.size()), MPI_BYTE,
                      peer_, tag_ + 1, links_->comm(), &report_request_),
            "MPI_Isend");
}

}  // namespace shale::comm
