#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "shale/comm/collective.h"

namespace shale::comm {

// What communicators of one group and its splits are made with.
struct NcclOptions {
  std::string group_name;
  int device = 0;        // CUDA index
  double timeout_s = 0;  // of what all ranks must come to; 0: none
  bool deterministic = false;
  std::function<void()> poll;  // called while waiting; throws to give up
};

// Owner of a communicator. It is non-blocking: calls that need other ranks are polled, with a
// time-out, and abort() ends them and the kernels on the device from another thread.
//
// Thread-safe. After abort() every function throws CommError.
class NcclComm {
 public:
  // Collective: all ranks with one `id`, which comes from one of them.
  NcclComm(const ncclUniqueId& id, int rank, int ranks, NcclOptions options);
  // Collective over `parent`: ranks that give the same color, by key, then rank.
  NcclComm(NcclComm& parent, int color, int key, NcclOptions options);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  static ncclUniqueId make_id();

  // Queues a collective on `stream`, a cudaStream_t of this device.
  void issue(const CollectiveCall& call, int rank, int ranks, void* stream);
  // Throws CommError if a collective has failed on the device or in the network.
  void check_async();
  void abort() noexcept;

  // Memory that NCCL can use without copies. All ranks register the same sizes in the same order.
  void* register_memory(void* memory, size_t bytes);
  void deregister_memory(void* handle) noexcept;

  const NcclOptions& options() const { return options_; }

 private:
  template <typename Call>
  void run(const char* what, Call&& call);
  void finish(ncclResult_t result, const char* what);
  void exchange(const CollectiveCall& call, int rank, int ranks, void* stream);
  ncclComm_t split(int color, int key);
  // Sleeps a little. Throws after the time-out and where poll throws.
  void pause(std::chrono::steady_clock::time_point start, const char* what) const;
  void close();
  [[noreturn]] void fail(ncclResult_t result, const char* what);

  NcclOptions options_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;   // null after abort()
  ncclComm_t child_ = nullptr;  // where a split leaves its result, when it gets there
};

}  // namespace shale::comm
