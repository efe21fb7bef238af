#pragma once

#include <string>
#include <vector>

#include "shale/kernels/simt/engine/fiber.h"
#include "shale/kernels/simt/engine/tracker.h"

namespace shale::emulator {

// The mbarriers of a block. A barrier's 8 bytes in shared memory hold a fixed pattern and the
// barrier's number in this object. So barriers that were overwritten or never initialised are
// detected.
class MBarriers {
 public:
  explicit MBarriers(Block& block) : block_(block) {}
  void reset() { barriers_.clear(); }

  void init(Fiber& self, void* at, int count);
  void arrive(Fiber& self, void* at, int expected_bytes);
  // Arrives for `self`, which may be a thread of any block of the cluster. Fails unless the
  // initialisation was fenced.
  void arrive_from_cluster(Fiber& self, void* at);
  void wait(Fiber& self, void* at, int parity);

  void fence_init(const Fiber& self);

  // ---- For bulk copies, which identify a barrier by its number ----
  // Returns the barrier's number; fails unless it was initialised and fenced.
  int for_copies(Fiber& self, void* at);
  // Returns the actor for the copies that barrier `number` counts.
  int engine(int number);
  void landed(int number, uint32_t bytes);

  // Returns a text such as "the mbarrier at dynamic shared memory (64 bytes) + 8: phase 3 lacks 1
  // of 2 arrivals and 16384 bytes".
  std::string describe(int number) const;

 private:
  struct Barrier {
    uint32_t offset = 0;
    int count = 0, pending = 0;     // arrivals per phase; arrivals still expected in this phase
    int64_t bytes = 0;              // bytes of copies that have not landed
    uint64_t phase = 0;             // number of the current phase
    std::vector<Fiber*> waiting{};  // wake when the phase ends
    int engine = -1;
    int initialised_by = 0;    // number of the thread
    bool fenced = false;       // that thread has executed a fence since
    SyncClock clock{};         // released by arrivals in this phase
    SyncClock of_parity[2]{};  // `clock` of the last complete phase of each parity
  };
  // Returns the barrier's number; fails if none is initialised at `at`.
  int number_of(Fiber& self, void* at);
  void change_bytes(Barrier& barrier, int64_t by);
  void complete_if_due(Barrier& barrier);

  Block& block_;
  std::vector<Barrier> barriers_{};
};

// Functions that kernels call; they act for the current thread.
void mbarrier_init(void* barrier, int count, Site site);
void fence_mbarrier_init(Site site);
void mbarrier_arrive(void* barrier, Site site);
void mbarrier_arrive_expect(void* barrier, int bytes, Site site);
// Arrives at the barrier that has the same address in block `rank` of the cluster.
void mbarrier_arrive_at(void* barrier, int rank, Site site);
void mbarrier_wait(void* barrier, int parity, Site site);
void fence_proxy_async(Site site);

}  // namespace shale::emulator
