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

// Looks after the collectives that a communicator has in flight on the device, from a thread of its
// own, since NCCL itself never gives up. If one fails or takes longer than the time-out, if ranks
// issue different ones, or if a rank has failed elsewhere, it keeps the reason and aborts the
// communicator: kernels that wait on the device end, and so does a host that waits for the device.
//
// A launch only leaves a note here; what it costs to look after them is paid on the watchdog's
// thread, with no lock that a launch takes.
class NcclWatchdog {
 public:
  // progress: null in a group of one rank, and for a link. compare: called at every look, throws if
  // ranks do not agree otherwise. `comm` and `recent` outlive its use.
  NcclWatchdog(NcclComm& comm, std::shared_ptr<GroupProgress> progress, RecentCollectives& recent,
               std::function<void()> compare = {});
  ~NcclWatchdog();

  // A collective that is being launched, which may wait for ranks that connect, and then runs.
  class Launch {
   public:
    // It has been queued. Null: nobody will ask when it ends, as it failed, or was captured.
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
  // bytes: of its larger buffer. counts: it runs now, and not when a graph is replayed.
  std::shared_ptr<Launch> begin(const Fingerprint& call, int64_t bytes, bool counts = true);
  void check() const;  // throws why the communicator was aborted
  void fail(std::exception_ptr error);

  // Ends the watch. together: all ranks come here, and it returns when they have. Returns a
  // progress whose last exchange goes on, which must live until MPI has ended, or null.
  std::shared_ptr<GroupProgress> stop(bool together);

 private:
  using Clock = std::chrono::steady_clock;
  void thread_main();
  void take_issued();
  void look();  // throws
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
  std::optional<InFlight> in_flight_;  // of the thread; until stop()
  std::vector<Issued> taken_;          // of the thread
  mutable std::mutex mutex_;           // of what follows; never held over a call that waits
  std::vector<Issued> issued_;         // since the thread last looked
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};  // failure_ is set
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the rest
};

}  // namespace shale::comm
