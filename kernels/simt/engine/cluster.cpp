#include "shale/kernels/simt/engine/cluster.h"

#include <utility>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/report.h"

namespace shale::emulator {
namespace {

// If threads yield more often than this without progress, they poll for something that never
// happens.
constexpr int64_t kMaxIdleYields = 20'000'000;
// Number of yields of polling threads after which a bulk copy lands, because the polling threads
// may depend on a thread that waits for the copy.
constexpr int64_t kPatience = 1024;

}  // namespace

void Cluster::run(const Grid& grid, Index3 first, GlobalLaunch* launch,
                  const std::atomic<bool>& another_failed) {
  size_ = grid.cluster;
  while (static_cast<int>(blocks_.size()) < size_) {
    blocks_.push_back(std::make_unique<Block>(*this, static_cast<int>(blocks_.size())));
  }
  error_ = nullptr;
  idle_yields_ = 0;
  another_failed_ = &another_failed;
  left_ = false;
  order_ = grid.options.order;
  random_ = SeededRandom(grid.options.seed + first.x);
  arrived_.clear();
  clock_.clear();
  const Index3& threads = grid.threads;
  if (grid.options.track) {
    actors_.reset(static_cast<int>(threads.x * threads.y * threads.z), size_);
  }
  for (int rank = 0; rank < size_; ++rank) {
    Index3 index = first;
    index.x += static_cast<unsigned>(rank);
    block(rank).begin(grid, index, launch, actors_);
  }

  t_fiber = next(block(0), false);
  t_fiber->block->tracker().resume();
  switch_context(scheduler_, t_fiber->context);
  t_fiber = nullptr;

  for (int rank = 0; rank < size_; ++rank) block(rank).end();
  if (left_) return;
  if (!has_error()) find_what_is_left();
  if (has_error()) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Cluster::find_what_is_left() {
  for (int rank = 0; rank < size_; ++rank) {
    if (block(rank).live() > 0) return report_stuck();
  }
  for (int rank = 0; rank < size_ && !has_error(); ++rank) {
    if (std::string damage = block(rank).shared().damage(); !damage.empty()) {
      block(rank).fill_error(Fault::kOutOfBounds, std::move(damage), nullptr);
    }
  }
}

void Cluster::report_stuck() {
  bool only_syncthreads = true, some_ended = false;
  std::string who;
  for (int rank = 0; rank < size_; ++rank) {
    const std::span<const Fiber> fibers = block(rank).fibers();
    for (const Fiber& fiber : fibers) {
      const bool ended = fiber.state == Fiber::State::kExited;
      some_ended |= ended;
      only_syncthreads &= ended || std::string_view(fiber.primitive) == "__syncthreads";
    }
    if (size_ > 1) who += cat(rank == 0 ? "" : "; ", "block ", rank, " of the cluster: ");
    who += describe_threads(fibers);
  }
  if (only_syncthreads && some_ended) {
    block(0).fill_error(Fault::kDivergentBarrier, cat("divergent barrier: ", who), nullptr);
  } else {
    block(0).fill_error(Fault::kDeadlock, cat("deadlock: ", who), nullptr);
  }
}

Block& Cluster::reach(Fiber& self, int rank) {
  if (rank < 0 || rank >= size_) {
    self.block->fail(Fault::kCluster,
                     cat(self.primitive, ": no block ", rank, " in a cluster of ", size_));
  }
  if (block(rank).live() == 0) {
    self.block->fail(Fault::kCluster,
                     cat(self.primitive, ": block ", rank,
                         " of the cluster has ended, and its shared memory with it"));
  }
  return block(rank);
}

void Cluster::sync(Fiber& self) {
  arrived_.push_back(&self);
  self.block->tracker().release(self.actor, clock_);
  if (static_cast<int>(arrived_.size()) < size_ * self.block->threads()) {
    return self.block->wait(self);
  }
  self.block->tracker().acquire(arrived_, std::vector<bool>(arrived_.size(), true), clock_);
  clock_.clear();
  for (Fiber* fiber : std::exchange(arrived_, {})) {
    if (fiber != &self) fiber->block->wake(*fiber);
  }
}

// ---- Scheduling ----

// Returns the rank of the block to try first; `after` is the one that was tried first the last
// time.
int Cluster::first_in_order(int after) {
  if (size_ == 1) return 0;
  return order_ == Order::kRandom ? static_cast<int>(random_.below(static_cast<size_t>(size_)))
                                  : (after + 1) % size_;
}

Block* Cluster::runnable(const Block& current, bool yields) {
  const bool stays = order_ == Order::kLifo && !yields;
  const int first = stays ? current.rank() : first_in_order(current.rank());
  for (int i = 0; i < size_; ++i) {
    Block& candidate = block((first + i) % size_);
    if (candidate.can_run()) return &candidate;
  }
  return nullptr;
}

Fiber* Cluster::next(const Block& current, bool yields) {
  do {
    if (Block* const block = runnable(current, yields)) return block->take_runnable();
  } while (land_one());
  return nullptr;
}

bool Cluster::land_one() {
  const int first = order_ == Order::kLifo ? size_ - 1 : first_in_order(size_ - 1);
  for (int i = 0; i < size_; ++i) {
    if (block((first + i) % size_).loads().land_one()) return true;
  }
  return false;
}

bool Cluster::may_poll_on(Block& block) {
  if (++idle_yields_ > kMaxIdleYields) {
    block.fail(Fault::kDeadlock, "deadlock: threads poll memory that nobody changes");
  }
  if (idle_yields_ % kPatience != 0) return true;
  land_one();
  left_ = another_failed_->load(std::memory_order_relaxed);
  return !left_;
}

int cluster_rank() {
  return t_fiber->block->rank();
}

void cluster_sync(Site site) {
  Fiber& self = enter("cluster_sync", site);
  self.block->cluster().sync(self);
}

}  // namespace shale::emulator
