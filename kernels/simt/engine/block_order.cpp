#include "shale/kernels/simt/engine/block_order.h"

#include <algorithm>

namespace shale::emulator {

void merge(BlockClock& into, const BlockClock& from) {
  for (const auto& [block, epoch] : from) {
    uint32_t& known = into[block];
    known = std::max(known, epoch);
  }
}

void BlockOrder::release(const void* place, const BlockClock& clock) {
  const std::lock_guard lock(mutex_);
  merge(places_[place], clock);
}

void BlockOrder::acquire(const void* place, BlockClock& clock) {
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(place); found != places_.end()) merge(clock, found->second);
}

}  // namespace shale::emulator
