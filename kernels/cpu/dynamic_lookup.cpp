#include "kernels/cpu/dynamic_lookup.h"

#include <bit>
#include <limits>

namespace shale::kernels {

DynamicLookup::DynamicLookup(const DynamicMap& map) {
  const auto zero = static_cast<size_t>(map.zero);
  boundary.fill(std::numeric_limits<float>::infinity());
  for (size_t level = 0; zero + level + 1 < map.levels.size(); ++level) {
    boundary[level] = (map.levels[zero + level] + map.levels[zero + level + 1]) / 2;
  }
  int32_t level = 0;
  for (int32_t cell = kFirstCell; cell <= kLastCell; ++cell) {
    const auto begin = std::bit_cast<float>(static_cast<uint32_t>(cell) << 16);
    while (begin >= boundary[static_cast<size_t>(level)]) ++level;
    level_at[static_cast<size_t>(cell - kFirstCell)] = level;
  }
}

const DynamicLookup& signed_lookup() {
  static const DynamicLookup lookup(kSignedMap);
  return lookup;
}

const DynamicLookup& unsigned_lookup() {
  static const DynamicLookup lookup(kUnsignedMap);
  return lookup;
}

}  // namespace shale::kernels
