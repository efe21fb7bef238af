#pragma once

#include <array>
#include <vector>

#include "shale/kernels/simt/engine/fiber.h"
#include "shale/kernels/simt/engine/tracker.h"

namespace shale::emulator {

inline constexpr int kBarriers = 16;  // barriers per block, as on the hardware

// The barriers of a block: number 0 is __syncthreads, higher numbers are named barriers.
class Barriers {
 public:
  explicit Barriers(Block& block) : block_(block) {}
  void reset();

  // Implements __syncthreads. All threads of the block must call it from the same place in the
  // source.
  void sync_all(Fiber& self);
  // Waits at named barrier `id` until `threads` threads (whole warps) have arrived. With
  // `arrive_only` it arrives and returns immediately.
  void sync(Fiber& self, int id, int threads, bool arrive_only);

 private:
  struct Barrier {
    std::vector<Fiber*> arrived{};  // threads that have arrived
    // for each entry of `arrived`: whether the thread waits (false: arrive_only)
    std::vector<bool> waits{};
    int threads = 0;                // expected at a named barrier
    SyncClock clock{};
  };
  void check_named(const Fiber& self, const Barrier& barrier, int id, int threads) const;
  void check_whole_warps(const Barrier& barrier, int id) const;
  void release(Fiber& self, Barrier& barrier);

  Block& block_;
  std::array<Barrier, kBarriers> barriers_{};
};

void sync_threads(Site site);  // implements __syncthreads
void named_barrier(int id, int threads, bool arrive_only, Site site);

}  // namespace shale::emulator
