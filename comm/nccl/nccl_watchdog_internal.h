#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shale/comm/link/device_resources.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/watch/group_progress_internal.h"
#include "shale/comm/watch/in_flight.h"

namespace shale::comm {

// Thread that watches the collectives of a communicator in flight on the device, because NCCL
// itself never gives up. It looks for a collective that fails or exceeds the time-out, for ranks
// that issue different collectives, and for a failure of any rank. Then it keeps the reason and
// aborts the communicator. This ends kernels that wait on the device, and hosts that wait for the
// device.
//
// A launch only records itself here. The watchdog's thread does the work, without a lock that a
// launch takes.
class NcclWatchdog {
 public:
  // progress: null in a group of one rank, and for a link. compare: called in each iteration;
  // throws if another comparison between ranks fails. `comm` and `recent` must outlive the
  // watchdog.
  NcclWatchdog(NcclComm& comm, std::shared_ptr<GroupProgress> progress, RecentCollectives& recent,
               std::function<void()> compare = {});
  ~NcclWatchdog();

  // A collective that is being launched and then runs. The launch may wait for ranks that connect.
  class Launch {
   public:
    // Call when the launch is queued. finished: event at its end; null if there is none, because
    // the launch failed or was captured.
    void queued(std::shared_ptr<const DeviceEvent> finished) {
      finished_ = std::move(finished);
      queued_.store(true, std::memory_order_release);
    }
    bool done() const {
      return queued_.load(std::memory_order_acquire) && (finished_ == nullptr || finished_->done());
    }

   private:
    std::shared_ptr<const DeviceEvent> finished_;  // written before queued_
    std::atomic<bool> queued_{false};
  };
  // bytes: size of the larger buffer. counts: false for a captured collective, which runs only when
  // its graph is replayed.
  std::shared_ptr<Launch> begin(const Fingerprint& call, int64_t bytes, bool counts = true);
  void check() const;  // throws the reason for which the communicator was aborted
  void fail(std::exception_ptr error);

  // Ends the watch. together: all ranks call this, and it returns when all have. Returns null, or a
  // progress whose exchange is unfinished; keep it until MPI has ended.
  std::shared_ptr<GroupProgress> stop(bool together);

 private:
  using Clock = std::chrono::steady_clock;
  void thread_main();
  void take_issued();
  void look();  // throws if it finds a problem
  void wait_for_all();

  NcclComm& comm_;
  std::shared_ptr<GroupProgress> progress_;
  std::function<void()> compare_;
  struct Issued {
    Fingerprint call;
    int64_t bytes = 0;
    bool counts = true;
    std::shared_ptr<const Launch> launch;
  };
  std::optional<InFlight> in_flight_;  // used by the watchdog's thread only, until stop()
  std::vector<Issued> taken_;          // used by the watchdog's thread only
  // guards the members from issued_ to failure_; never held while waiting
  mutable std::mutex mutex_;
  std::vector<Issued> issued_;         // launches since the thread's last iteration
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};  // true: failure_ is set
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last member: the thread uses the other members
};

}  // namespace shale::comm
