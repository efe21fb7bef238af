#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "shale/comm/collective.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// Options of the communicators of one group and its splits.
struct NcclOptions {
  std::string group_name;
  DeviceBackend* device = nullptr;  // outlives the communicators
  // Current time-out of operations that need all ranks; 0: none.
  std::function<double()> timeout_s = [] { return 0.0; };
  bool deterministic = false;
  int max_ctas = 0;  // thread blocks per kernel, to leave room for other communicators; 0: NCCL's
                     // default
  std::function<void()> poll;  // called repeatedly while waiting; throws to give up
  // Called after the time-out; throws, naming ranks, if ranks have stopped sending heartbeats.
  std::function<void()> ask_who_lives;
};

// Owner of a non-blocking communicator, which only starts a group and splits it. These calls need
// other ranks, so they are polled, with a time-out. A launch on such a communicator would need an
// NCCL thread, and a wait for it.
class NcclParent {
 public:
  // Collective: all ranks pass one `id`, made by one of them.
  NcclParent(const ncclUniqueId& id, int rank, int ranks, NcclOptions options);
  ~NcclParent();
  NcclParent(const NcclParent&) = delete;
  NcclParent& operator=(const NcclParent&) = delete;

  static ncclUniqueId make_id();

  // Makes a blocking communicator of the ranks with the same color, ordered by key, then rank; null
  // for kNoColor. Collective.
  static constexpr int kNoColor = NCCL_SPLIT_NOCOLOR;
  ncclComm_t split(int color, int key, const NcclOptions& options);

 private:
  void finish(ncclResult_t result, const char* what);
  // Sleeps briefly. Throws after the time-out and whatever poll throws.
  void pause(std::chrono::steady_clock::time_point start, const char* what) const;
  void abort() noexcept;

  NcclOptions options_;
  ncclComm_t comm_ = nullptr;
  ncclComm_t child_ = nullptr;  // result of a split, written by NCCL later
};

// Owner of a blocking communicator, which launches collectives on the caller's thread, without a
// lock and without waiting, except for other ranks on their first connection.
//
// For two threads: one launches, another may call check_async() and abort(). After abort() every
// function throws CommError.
class NcclComm {
 public:
  // Collective over the ranks of `parent`.
  NcclComm(NcclParent& parent, int color, int key, NcclOptions options);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Queues a collective on `stream`, a cudaStream_t of this device.
  void issue(const CollectiveCall& call, int rank, int ranks, void* stream);
  // Queues one message to or from a rank.
  void pass(const View& x, bool sends, int peer, void* stream);
  // Throws CommError if a collective has failed on the device or in the network.
  void check_async();
  // Ends kernels on the device, and a launch on another thread that waits for other ranks.
  void abort() noexcept;
  // Call at the end, when neither a rank nor the device uses the communicator any more.
  void close();

  // Registers memory for use without copies. All ranks register the same sizes in the same order.
  void* register_memory(void* memory, size_t bytes);
  void deregister_memory(void* handle) noexcept;

  const NcclOptions& options() const { return options_; }

 private:
  class Use;
  template <typename Call>
  void run(const char* what, Call&& call);
  void exchange(const CollectiveCall& call, int rank, int ranks, void* stream);
  bool unused_within(std::chrono::milliseconds time) const;
  [[noreturn]] void fail(ncclResult_t result, const char* what);

  NcclOptions options_;
  ncclComm_t comm_ = nullptr;
  std::atomic<int> users_{0};  // threads inside an NCCL call
  std::atomic<bool> ended_{false};
};

}  // namespace shale::comm
