#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

// Maximum blocks in a cluster that every GPU with clusters supports.
inline constexpr int kMaxCluster = 8;

// Runs clusters, one at a time, on the OS thread that owns it. A cluster's blocks run concurrently:
// when a thread waits, a thread of any of these blocks runs next. Most launches have clusters of
// one block.
class Cluster {
 public:
  Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Runs the grid.cluster blocks from `first` on, along x, to their end. `launch`: see
  // GlobalAccess; may be null. `another_failed` is set when another block of the launch has failed;
  // a thread that polls could then wait for ever, so the cluster is abandoned. Throws KernelError.
  void run(const Grid& grid, Index3 first, GlobalLaunch* launch,
           const std::atomic<bool>& another_failed);

  int size() const { return size_; }
  // Returns block `rank`, whose memory the thread `self` accesses. Fails if there is none, or if it
  // has ended.
  Block& reach(Fiber& self, int rank);

  // Barrier of all threads of all blocks.
  void sync(Fiber& self);

  // ---- For blocks ----
  // Returns the thread to run after one of `current` that waits, has ended or, with `yields`, lets
  // all others run first. If no thread can run, bulk copies land until one can. Null: none ever
  // will.
  Fiber* next(const Block& current, bool yields);
  MachineContext& scheduler() { return scheduler_; }
  void set_error(std::exception_ptr error) { error_ = std::move(error); }
  bool has_error() const { return error_ != nullptr; }
  void made_progress() { idle_yields_ = 0; }
  // Counts one turn of a polling thread. False: the cluster must be abandoned: another one failed.
  bool may_poll_on(Block& block);

 private:
  Block& block(int rank) { return *blocks_[static_cast<size_t>(rank)]; }
  int first_in_order(int after);
  Block* runnable(const Block& current, bool yields);
  bool land_one();
  void find_what_is_left();
  void report_stuck();

  std::vector<std::unique_ptr<Block>> blocks_{};  // reused; the first size_ belong to the cluster
  int size_ = 0;
  Order order_ = Order::kFifo;
  SeededRandom random_{};
  Actors actors_{};
  std::vector<Fiber*> arrived_{};  // at the cluster's barrier
  SyncClock clock_{};              // of these threads
  int64_t idle_yields_ = 0;        // since a thread last waited or ended
  const std::atomic<bool>* another_failed_ = nullptr;
  bool left_ = false;  // abandoned, because another cluster failed
  std::exception_ptr error_{};
  MachineContext scheduler_{};  // the caller of run()
};

// Called by kernels, on the current thread.
[[gnu::const]] int cluster_rank();
void cluster_sync(Site site);

}  // namespace shale::emulator
