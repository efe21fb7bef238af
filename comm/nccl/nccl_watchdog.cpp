#include <utility>

#include "shale/base/error.h"
#include "shale/comm/nccl/nccl_watchdog_internal.h"

namespace shale::comm {
namespace {

constexpr std::chrono::milliseconds kInterval{20};

}  // namespace

NcclWatchdog::NcclWatchdog(NcclComm& comm, std::shared_ptr<GroupProgress> progress,
                           RecentCollectives& recent, std::function<void()> compare)
    : comm_(comm),
      progress_(std::move(progress)),
      compare_(std::move(compare)),
      in_flight_(std::in_place, recent, comm.options().group_name),
      thread_([this] { thread_main(); }) {}

NcclWatchdog::~NcclWatchdog() {
  stop(/*together=*/false);
}

std::shared_ptr<NcclWatchdog::Launch> NcclWatchdog::begin(const Fingerprint& call, int64_t bytes,
                                                          bool counts) {
  auto launch = std::make_shared<Launch>();
  const std::lock_guard lock(mutex_);
  issued_.push_back({.call = call, .bytes = bytes, .counts = counts, .launch = launch});
  return launch;
}

void NcclWatchdog::check() const {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

void NcclWatchdog::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || stop_) return;  // after stop() the communicator may already be freed
    failure_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  comm_.abort();
}

void NcclWatchdog::thread_main() {
  while (!stop_.load(std::memory_order_relaxed)) {
    try {
      comm_.options().device->use();
      if (failed_.load(std::memory_order_acquire)) return;
      look();
    } catch (const std::exception&) {
      return fail(std::current_exception());
    }
    std::this_thread::sleep_for(kInterval);
  }
}

void NcclWatchdog::take_issued() {
  {
    const std::lock_guard lock(mutex_);
    std::swap(issued_, taken_);
  }
  for (Issued& issued : taken_) {
    GroupProgress* const progress = issued.counts ? progress_.get() : nullptr;
    if (progress != nullptr) progress->issued(issued.call);
    in_flight_->add(issued.call, issued.bytes, [progress, launch = std::move(issued.launch)] {
      if (!launch->done()) return false;
      if (progress != nullptr) progress->finished();
      return true;
    });
  }
  taken_.clear();  // keeps the capacity for the next swap
}

void NcclWatchdog::look() {
  take_issued();
  in_flight_->drop_finished();
  comm_.check_async();
  if (comm_.options().poll) comm_.options().poll();
  if (progress_ != nullptr) progress_->exchange();
  if (compare_) compare_();
  const double limit_s = comm_.options().timeout_s();
  if (in_flight_->empty() || limit_s == 0 || in_flight_->seconds() <= limit_s) return;
  if (comm_.options().ask_who_lives) comm_.options().ask_who_lives();
  throw CommError(
      cat("group '", comm_.options().group_name, "': waited ", limit_s, " s in ",
          describe(in_flight_->first()), ": ",
          progress_ != nullptr ? progress_->late_ranks() : "the device has not finished it"));
}

std::shared_ptr<GroupProgress> NcclWatchdog::stop(bool together) {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  in_flight_.reset();
  issued_.clear();
  if (progress_ == nullptr) return nullptr;
  if (together) wait_for_all();
  std::shared_ptr<GroupProgress> progress = std::move(progress_);
  return progress->pending() ? progress : nullptr;
}

void NcclWatchdog::wait_for_all() {
  const Clock::time_point start = Clock::now();
  while (!progress_->leave()) {
    if (comm_.options().poll) comm_.options().poll();
    const double limit_s = comm_.options().timeout_s();
    if (limit_s > 0 && Clock::now() > start + std::chrono::duration<double>(limit_s)) {
      throw CommError(cat("group '", comm_.options().group_name,
                          "': not all ranks destroyed the group within ", limit_s, " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace shale::comm
