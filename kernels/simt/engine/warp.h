#pragma once

#include <cstdint>
#include <vector>

#include "shale/kernels/simt/engine/fiber.h"

namespace shale::emulator {

// A collective operation of a warp. Each lane has a payload on its own stack; when the last lane of
// the mask has arrived, combine() reads and writes all payloads.
struct WarpOperation {
  const char* name;
  // Reads and writes payloads[lane] of the lanes in `mask`; null: the operation has no payloads.
  void (*combine)(Block& block, uint32_t mask, void* const* payloads);
  bool orders_memory = false;
};

// The collective operations of one warp that wait for lanes, at most one per mask.
class WarpCollectives {
 public:
  // Prepares a warp of `lanes` threads; the last warp of a block may have fewer than 32.
  void reset(int lanes) {
    pending_.clear();
    gone_ = lanes == kWarp ? 0 : ~0u << lanes;
  }
  void join(Fiber& self, uint32_t mask, const WarpOperation& operation, void* payload);
  // Called when `self` has ended. Fails if other lanes wait for it, because they would wait for
  // ever.
  void leave(Fiber& self);

 private:
  struct Pending {
    uint32_t mask = 0, arrived = 0;
    const WarpOperation* operation = nullptr;
    Fiber* lanes[kWarp] = {};
    void* payloads[kWarp] = {};
  };
  Pending& find(Fiber& self, uint32_t mask, const WarpOperation& operation);
  void complete(Fiber& self, size_t index);

  std::vector<Pending> pending_{};
  uint32_t gone_ = 0;  // mask of lanes that have ended or do not exist
};

// ---- Called by kernels, on the current thread. A mask names the lanes that take part. ----

void sync_warp(uint32_t mask, Site site);  // __syncwarp, which also orders memory

// Returns the bits of lane `source`, or the lane's own if source is not in 0..31.
uint64_t shuffle(uint32_t mask, uint64_t bits, int source, Site site);
uint32_t ballot(uint32_t mask, bool predicate, Site site);
// Fails unless `own`, the current thread's value, equals the value of lane 0.
void check_uniform(int own, int of_lane_0, Site site);

}  // namespace shale::emulator
