#include "shale/kernels/simt/engine/mbarriers.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/cluster.h"

namespace shale::emulator {
namespace {

constexpr uint64_t kMark = uint64_t{0x6d626172} << 32;
constexpr size_t kBytes = 8;
// Limits from the PTX ISA, "Tracking asynchronous operations by the mbarrier object" and
// "mbarrier.init".
constexpr int64_t kMaxPendingBytes = (int64_t{1} << 20) - 1;
constexpr int kMaxCount = (1 << 20) - 1;

}  // namespace

void MBarriers::init(Fiber& self, void* at, int count) {
  const uint32_t offset = block_.shared().check(at, kBytes, kBytes, "mbarrier_init");
  if (count < 1 || count > kMaxCount) {
    block_.fail(Fault::kBarrierMisuse,
                cat("mbarrier_init: for ", count, " arrivals, expected 1 to ", kMaxCount));
  }
  for (const Barrier& barrier : barriers_) {
    if (barrier.offset == offset && !barrier.waiting.empty()) {
      block_.fail(Fault::kBarrierMisuse, "mbarrier_init: threads wait at this barrier");
    }
  }
  block_.tracker().access(self.actor, offset, kBytes, Access::kWrite);
  const uint64_t word = kMark | barriers_.size();
  std::memcpy(at, &word, sizeof(word));
  barriers_.emplace_back();
  barriers_.back().offset = offset;
  barriers_.back().count = barriers_.back().pending = count;
  barriers_.back().initialised_by = self.id;
}

void MBarriers::fence_init(const Fiber& self) {
  for (Barrier& barrier : barriers_) {
    if (barrier.initialised_by == self.id) barrier.fenced = true;
  }
}

int MBarriers::number_of(Fiber& self, void* at) {
  const uint32_t offset = block_.shared().check(at, kBytes, kBytes, self.primitive);
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  const uint64_t number = word ^ kMark;
  if (number >= barriers_.size() || barriers_[number].offset != offset) {
    std::string text =
        cat(self.primitive, ": the mbarrier at ", block_.shared().describe(offset),
            block_.seen_from_elsewhere(), " was not initialised, or was overwritten");
    block_.fail(Fault::kBarrierMisuse, std::move(text));
  }
  // Uses of the barrier count as reads, so that they can only race with its initialisation.
  block_.tracker().access(self.actor, offset, kBytes, Access::kRead);
  return static_cast<int>(number);
}

int MBarriers::for_copies(Fiber& self, void* at) {
  const int number = number_of(self, at);
  if (!barriers_[static_cast<size_t>(number)].fenced) {
    std::string text = cat(self.primitive, ": no fence_mbarrier_init() has followed the init of ",
                           describe(number));
    block_.fail(Fault::kProxyFence, std::move(text));
  }
  return number;
}

int MBarriers::engine(int number) {
  Barrier& barrier = barriers_[static_cast<size_t>(number)];
  if (barrier.engine < 0) {
    barrier.engine = block_.tracker().add_engine(EngineKind::kBulkLoads, number);
  }
  return barrier.engine;
}

void MBarriers::change_bytes(Barrier& barrier, int64_t by) {
  barrier.bytes += by;
  if (std::abs(barrier.bytes) > kMaxPendingBytes) {
    std::string text = cat("an mbarrier waits for ", barrier.bytes, " more bytes, at most ",
                           kMaxPendingBytes, " bytes are possible");
    block_.fail(Fault::kBarrierMisuse, std::move(text));
  }
}

void MBarriers::complete_if_due(Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  if (barrier.engine >= 0) block_.tracker().release(barrier.engine, barrier.clock);
  std::swap(barrier.of_parity[barrier.phase % 2], barrier.clock);
  barrier.clock.clear();
  ++barrier.phase;
  barrier.pending = barrier.count;
  for (Fiber* fiber : std::exchange(barrier.waiting, {})) block_.wake(*fiber);
}

void MBarriers::arrive(Fiber& self, void* at, int expected_bytes) {
  const int number = number_of(self, at);
  Barrier& barrier = barriers_[static_cast<size_t>(number)];
  if (barrier.pending == 0) {
    std::string text = cat("more arrivals than the phase expects: ", describe(number));
    block_.fail(Fault::kBarrierMisuse, std::move(text));
  }
  block_.tracker().release(self.actor, barrier.clock);
  change_bytes(barrier, expected_bytes);
  --barrier.pending;
  complete_if_due(barrier);
}

void MBarriers::arrive_from_cluster(Fiber& self, void* at) {
  static_cast<void>(for_copies(self, at));
  arrive(self, at, 0);
}

void MBarriers::wait(Fiber& self, void* at, int parity) {
  const int number = number_of(self, at);
  self.barrier = number;
  const auto wanted = static_cast<uint64_t>(parity & 1);
  // Other threads may add barriers while this one waits, so the vector is indexed each time.
  const auto barrier = [&]() -> Barrier& { return barriers_[static_cast<size_t>(number)]; };
  while (barrier().phase % 2 == wanted) {
    barrier().waiting.push_back(&self);
    block_.wait(self);
  }
  block_.tracker().learn(self.actor, barrier().of_parity[wanted]);
}

void MBarriers::landed(int number, uint32_t bytes) {
  Barrier& barrier = barriers_[static_cast<size_t>(number)];
  barrier.bytes -= bytes;
  complete_if_due(barrier);
}

std::string MBarriers::describe(int number) const {
  const Barrier& barrier = barriers_[static_cast<size_t>(number)];
  return cat("the mbarrier at ", block_.shared().describe(barrier.offset),
             block_.seen_from_elsewhere(), ": phase ", barrier.phase, " lacks ", barrier.pending,
             " of ", barrier.count, " arrivals and ", barrier.bytes, " bytes");
}

void mbarrier_init(void* barrier, int count, Site site) {
  Fiber& self = enter("mbarrier_init", site);
  self.block->mbarriers().init(self, barrier, count);
}

void fence_mbarrier_init(Site site) {
  Fiber& self = enter("fence_mbarrier_init", site);
  self.block->mbarriers().fence_init(self);
}

void mbarrier_arrive(void* barrier, Site site) {
  Fiber& self = enter("mbarrier_arrive", site);
  self.block->mbarriers().arrive(self, barrier, 0);
}

void mbarrier_arrive_expect(void* barrier, int bytes, Site site) {
  Fiber& self = enter("mbarrier_arrive_expect", site);
  self.block->mbarriers().arrive(self, barrier, bytes);
}

void mbarrier_arrive_at(void* barrier, int rank, Site site) {
  Fiber& self = enter("mbarrier_arrive_at", site);
  Block& block = self.block->cluster().reach(self, rank);
  const uint32_t offset = self.block->shared().offset_of(barrier);
  block.mbarriers().arrive_from_cluster(self, block.shared().data() + offset);
}

void mbarrier_wait(void* barrier, int parity, Site site) {
  Fiber& self = enter("mbarrier_wait", site);
  self.block->mbarriers().wait(self, barrier, parity);
}

void fence_proxy_async(Site site) {
  Fiber& self = enter("fence_proxy_async", site);
  self.block->tracker().proxy_fence(self.actor);
}

}  // namespace shale::emulator
