#pragma once

#include <array>
#include <cstdint>

#include "kernels/dynamic_map.h"

namespace shale::kernels {

// Finds the level nearest to a magnitude in [0, 1] with two table look-ups instead of a search. The
// upper 16 bits of the magnitude name a cell; cells are so narrow that at most one boundary between
// levels falls into one, so the level is the one at the cell's beginning or the next.
struct DynamicLookup {
  static constexpr int32_t kFirstCell = 0x3400;  // 2^-23: below it lies no boundary
  static constexpr int32_t kLastCell = 0x3f80;   // that of 1

  std::array<int32_t, kLastCell - kFirstCell + 1> level_at{};  // of a cell's beginning
  std::array<float, 256> boundary{};  // between a level and the next; of the last, infinity

  explicit DynamicLookup(const DynamicMap& map);
};

const DynamicLookup& signed_lookup();  // levels count from map.zero
const DynamicLookup& unsigned_lookup();

}  // namespace shale::kernels
