#include <cuda_runtime.h>

#include "shale/base/error.h"
#include "shale/comm/nccl/nccl_watchdog_internal.h"

namespace shale::comm {
namespace {

constexpr std::chrono::milliseconds kInterval{20};

}  // namespace

NcclWatchdog::NcclWatchdog(NcclComm& comm, std::shared_ptr<GroupProgress> progress,
                           RecentCollectives& recent)
    : comm_(comm),
      progress_(std::move(progress)),
      in_flight_(std::in_place, recent, comm.options().group_name),
      thread_([this] { thread_main(); }) {}

NcclWatchdog::~NcclWatchdog() {
  stop(/*together=*/false);
}

void NcclWatchdog::add(const Fingerprint& call, int64_t bytes,
                       std::shared_ptr<const DeviceEvent> finished) {
  const std::lock_guard lock(mutex_);
  in_flight_->add(call, bytes, [finished = std::move(finished)] { return finished->done(); });
  if (progress_ != nullptr) progress_->issued(call);
}

void NcclWatchdog::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void NcclWatchdog::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || stop_) return;  // the communicator may be gone
    failure_ = std::move(error);
  }
  comm_.abort();
}

void NcclWatchdog::thread_main() {
  cudaSetDevice(comm_.options().device);  // an error comes again, from calls that can report it
  while (!stop_.load(std::memory_order_relaxed)) {
    try {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      look();
    } catch (const std::exception&) {
      return fail(std::current_exception());
    }
    std::this_thread::sleep_for(kInterval);
  }
}

void NcclWatchdog::look() {
  const int64_t ended = in_flight_->drop_finished();
  for (int64_t i = 0; i < ended && progress_ != nullptr; ++i) progress_->finished();
  comm_.check_async();
  if (comm_.options().poll) comm_.options().poll();
  if (progress_ != nullptr) progress_->exchange();
  const double limit_s = comm_.options().timeout_s;
  if (in_flight_->empty() || limit_s == 0 || in_flight_->seconds() <= limit_s) return;
  throw CommError(
      cat("group '", comm_.options().group_name, "': waited ", limit_s, " s in ",
          describe(in_flight_->first()), ": ",
          progress_ != nullptr ? progress_->late_ranks() : "the device does not finish it"));
}

std::shared_ptr<GroupProgress> NcclWatchdog::stop(bool together) {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  in_flight_.reset();
  if (progress_ == nullptr) return nullptr;
  if (together) wait_for_all();
  std::shared_ptr<GroupProgress> progress = std::move(progress_);
  return progress->pending() ? progress : nullptr;
}

void NcclWatchdog::wait_for_all() {
  const Clock::time_point start = Clock::now();
  while (!progress_->leave()) {
    if (comm_.options().poll) comm_.options().poll();
    const double limit_s = comm_.options().timeout_s;
    if (limit_s > 0 && Clock::now() > start + std::chrono::duration<double>(limit_s)) {
      throw CommError(cat("group '", comm_.options().group_name,
                          "': not all ranks have come to its end after ", limit_s, " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace shale::comm
