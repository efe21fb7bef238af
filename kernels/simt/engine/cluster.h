#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

// Largest cluster, in blocks, that every GPU with clusters supports.
inline constexpr int kMaxCluster = 8;

// Runs clusters, one at a time, on the OS thread that owns it. A cluster's blocks run concurrently:
// when a thread waits, a thread of any of these blocks runs next. Most launches have clusters of
// one block.
class Cluster {
 public:
  Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Runs one cluster to its end: grid.cluster blocks from `first` on, along x. `launch`: as in
  // GlobalAccess::begin_block(). `another_failed` is set when another block of the launch has
  // failed; a thread that polls could then wait for ever, so this cluster is abandoned. Throws
  // KernelError.
  void run(const Grid& grid, Index3 first, GlobalLaunch* launch,
           const std::atomic<bool>& another_failed);

  int size() const { return size_; }
  // Returns block `rank`, whose memory the thread `self` accesses. Fails if there is no such block,
  // or if it has ended.
  Block& reach(Fiber& self, int rank);

  // Barrier of all threads of the cluster.
  void sync(Fiber& self);

  // ---- For blocks ----
  // Returns the thread to run after a thread of block `current` that waits or has ended, or that
  // yields to all others. If no thread can run, lands bulk copies until one can. Returns null if
  // none ever will.
  Fiber* next(const Block& current, bool yields);
  MachineContext& scheduler() { return scheduler_; }
  void set_error(std::exception_ptr error) { error_ = std::move(error); }
  bool has_error() const { return error_ != nullptr; }
  void made_progress() { idle_yields_ = 0; }
  // Counts a yield of a polling thread. Returns false if another cluster failed and this one must
  // be abandoned.
  bool may_poll_on(Block& block);

 private:
  Block& block(int rank) { return *blocks_[static_cast<size_t>(rank)]; }
  int first_in_order(int after);
  Block* runnable(const Block& current, bool yields);
  bool land_one();
  void find_what_is_left();
  void report_stuck();

  std::vector<std::unique_ptr<Block>> blocks_{};  // reused; the first size_ are in use
  int size_ = 0;
  Order order_ = Order::kFifo;
  SeededRandom random_{};
  Actors actors_{};
  std::vector<Fiber*> arrived_{};  // threads at the cluster's barrier
  SyncClock clock_{};              // clock of the cluster's barrier
  int64_t idle_yields_ = 0;        // yields since a thread last waited or ended
  const std::atomic<bool>* another_failed_ = nullptr;
  bool left_ = false;  // this cluster was abandoned, because another one failed
  std::exception_ptr error_{};
  MachineContext scheduler_{};  // context of the caller of run()
};

// Functions that kernels call; they act for the current thread.
[[gnu::const]] int cluster_rank();
void cluster_sync(Site site);

}  // namespace shale::emulator
