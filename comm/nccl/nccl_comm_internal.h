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
  // maximum thread blocks per kernel, which leaves SMs for other communicators; 0: NCCL's default
  int max_ctas = 0;
  std::function<void()> poll;  // called repeatedly while waiting; throws to give up
  // Called after the time-out. Throws and names ranks if some have stopped sending heartbeats.
  std::function<void()> ask_who_lives;
};

// Owner of a non-blocking communicator. It is used only to connect a group's ranks and to split the
// group. These calls need other ranks; they are polled, with a time-out. Collectives do not run on
// it, because each launch would need an NCCL thread and a wait for that thread.
class NcclParent {
 public:
  // Collective: all ranks pass one `id`, made by one of them.
  NcclParent(const ncclUniqueId& id, int rank, int ranks, NcclOptions options);
  ~NcclParent();
  NcclParent(const NcclParent&) = delete;
  NcclParent& operator=(const NcclParent&) = delete;

  static ncclUniqueId make_id();

  // Color of a rank that gets no communicator.
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

// Owner of a blocking communicator. It launches collectives on the caller's thread without a lock.
// A launch waits only when it connects to another rank for the first time.
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
  // Frees the communicator. Call it when neither the other ranks nor the device use it any more.
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
