#pragma once

#include <string>
#include <vector>

#include "shale/kernels/simt/engine/fiber.h"
#include "shale/kernels/simt/engine/tracker.h"

namespace shale::emulator {

// The mbarriers of a block. A barrier's 8 bytes in shared memory hold a mark and its number here,
// so that overwritten or uninitialised barriers are detected.
class MBarriers {
 public:
  explicit MBarriers(Block& block) : block_(block) {}
  void reset() { barriers_.clear(); }

  void init(Fiber& self, void* at, int count);
  void arrive(Fiber& self, void* at, int expected_bytes);
  // `self` may be a thread of any block of the cluster. Fails unless the init was fenced.
  void arrive_from_cluster(Fiber& self, void* at);
  void wait(Fiber& self, void* at, int parity);

  void fence_init(const Fiber& self);

  // ---- For bulk copies, which identify a barrier by its number ----
  int for_copies(Fiber& self, void* at);  // fails unless it was initialised and fenced
  // Returns the actor of the copies that this barrier counts.
  int engine(int number);
  void landed(int number, uint32_t bytes);

  // Describes the state: "the mbarrier at dynamic shared memory (64 bytes) + 8: phase 3 lacks 1 of
  // 2 arrivals and 16384 bytes".
  std::string describe(int number) const;

 private:
  struct Barrier {
    uint32_t offset = 0;
    int count = 0, pending = 0;     // arrivals
    int64_t bytes = 0;              // expected, not yet landed
    uint64_t phase = 0;             // current phase
    std::vector<Fiber*> waiting{};  // check again when the phase ends
    int engine = -1;
    int initialised_by = 0;    // thread number
    bool fenced = false;       // by that thread, after the init
    SyncClock clock{};         // knowledge of the arrivals in this phase
    SyncClock of_parity[2]{};  // the same for the last complete phase of each parity
  };
  int number_of(Fiber& self, void* at);  // fails unless it was initialised
  void change_bytes(Barrier& barrier, int64_t by);
  void complete_if_due(Barrier& barrier);

  Block& block_;
  std::vector<Barrier> barriers_{};
};

// Called by kernels, on the current thread.
void mbarrier_init(void* barrier, int count, Site site);
void fence_mbarrier_init(Site site);
void mbarrier_arrive(void* barrier, Site site);
void mbarrier_arrive_expect(void* barrier, int bytes, Site site);
// Arrives at the barrier at the same address in block `rank` of the cluster.
void mbarrier_arrive_at(void* barrier, int rank, Site site);
void mbarrier_wait(void* barrier, int parity, Site site);
void fence_proxy_async(Site site);

}  // namespace shale::emulator
