#include "shale/kernels/simt/engine/barriers.h"

#include <algorithm>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

void Barriers::reset() {
  for (Barrier& barrier : barriers_) {
    barrier.arrived.clear();
    barrier.waits.clear();
    barrier.clock.clear();
  }
}

void Barriers::sync_all(Fiber& self) {
  Barrier& barrier = barriers_[0];
  if (!barrier.arrived.empty() && !(barrier.arrived.front()->site == self.site)) {
    block_.fail(
        Fault::kDivergentBarrier,
        cat("divergent barrier: this thread is at the __syncthreads of ", self.site, ", thread ",
            barrier.arrived.front()->id, " at that of ", barrier.arrived.front()->site));
  }
  barrier.arrived.push_back(&self);
  barrier.waits.push_back(true);
  if (static_cast<int>(barrier.arrived.size()) < block_.threads()) return block_.wait(self);
  block_.tracker().barrier_of_all();
  release(self, barrier);
}

void Barriers::sync(Fiber& self, int id, int threads, bool arrive_only) {
  if (id < 1 || id >= kBarriers) {
    block_.fail(Fault::kBarrierMisuse,
                cat("named barrier ", id, ": expected a number from 1 to 15"));
  }
  Barrier& barrier = barriers_[static_cast<size_t>(id)];
  check_named(self, barrier, id, threads);
  barrier.threads = threads;
  barrier.arrived.push_back(&self);
  barrier.waits.push_back(!arrive_only);
  block_.tracker().release(self.actor, barrier.clock);
  if (static_cast<int>(barrier.arrived.size()) < threads) {
    if (!arrive_only) block_.wait(self);
    return;
  }
  check_whole_warps(barrier, id);
  block_.tracker().acquire(barrier.arrived, barrier.waits, barrier.clock);
  barrier.clock.clear();
  release(self, barrier);
}

void Barriers::check_named(const Fiber& self, const Barrier& barrier, int id, int threads) const {
  if (threads % kWarp != 0 || threads < kWarp || threads > block_.threads()) {
    block_.fail(Fault::kBarrierMisuse,
                cat("named barrier ", id, " of ", threads,
                    " threads: expected whole warps, at most ", block_.threads(), " threads"));
  }
  if (!barrier.arrived.empty() && barrier.threads != threads) {
    block_.fail(Fault::kBarrierMisuse,
                cat("named barrier ", id, ": this thread says ", threads, " threads, thread ",
                    barrier.arrived.front()->id, " said ", barrier.threads));
  }
  if (std::find(barrier.arrived.begin(), barrier.arrived.end(), &self) != barrier.arrived.end()) {
    block_.fail(Fault::kBarrierMisuse,
                cat("named barrier ", id, ": this thread has arrived already"));
  }
}

// Named barriers work on whole warps: lanes that arrive separately would wait for ever.
void Barriers::check_whole_warps(const Barrier& barrier, int id) const {
  std::array<int, kMaxThreads / kWarp> lanes{};
  for (const Fiber* fiber : barrier.arrived) ++lanes[static_cast<size_t>(fiber->warp)];
  for (size_t warp = 0; warp < lanes.size(); ++warp) {
    if (lanes[warp] == 0 || lanes[warp] == kWarp) continue;
    block_.fail(Fault::kBarrierMisuse, cat("named barrier ", id, ": ", lanes[warp],
                                           " lanes of warp ", warp, " came, expected all or none"));
  }
}

void Barriers::release(Fiber& self, Barrier& barrier) {
  for (size_t i = 0; i < barrier.arrived.size(); ++i) {
    if (barrier.waits[i] && barrier.arrived[i] != &self) block_.wake(*barrier.arrived[i]);
  }
  barrier.arrived.clear();
  barrier.waits.clear();
}

void sync_threads(Site site) {
  Fiber& self = enter("__syncthreads", site);
  self.block->barriers().sync_all(self);
}

void named_barrier(int id, int threads, bool arrive_only, Site site) {
  Fiber& self = enter(arrive_only ? "barrier_arrive" : "barrier_sync", site);
  self.barrier = id;
  self.block->barriers().sync(self, id, threads, arrive_only);
}

}  // namespace shale::emulator
