#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "shale/comm/device_resources.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/watch/group_progress_internal.h"
#include "shale/comm/watch/in_flight.h"

namespace shale::comm {

// Looks after the collectives that a communicator has in flight on the device, from a thread of its
// own, since NCCL itself never gives up. If one fails or takes longer than the time-out, if ranks
// issue different ones, or if a rank has failed elsewhere, it keeps the reason and aborts the
// communicator: kernels that wait on the device end, and so does a host that waits for the device.
class NcclWatchdog {
 public:
  // progress: null in a group of one rank. `comm` and `recent` outlive its use.
  NcclWatchdog(NcclComm& comm, std::shared_ptr<GroupProgress> progress, RecentCollectives& recent);
  ~NcclWatchdog();

  // A collective has been queued; bytes: of its larger buffer; `finished` is its end.
  void add(const Fingerprint& call, int64_t bytes, std::shared_ptr<const DeviceEvent> finished);
  void check() const;  // throws why the communicator was aborted
  void fail(std::exception_ptr error);

  // Ends the watch. together: all ranks come here, and it returns when they have. Returns a
  // progress whose last exchange goes on, which must live until MPI has ended, or null.
  std::shared_ptr<GroupProgress> stop(bool together);

 private:
  using Clock = std::chrono::steady_clock;
  void thread_main();
  void look();  // with the mutex held; throws
  void wait_for_all();

  NcclComm& comm_;
  std::shared_ptr<GroupProgress> progress_;
  mutable std::mutex mutex_;
  std::optional<InFlight> in_flight_;  // until stop()
  std::exception_ptr failure_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the rest
};

}  // namespace shale::comm
