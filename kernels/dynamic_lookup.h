#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "shale/kernels/dynamic_map.h"

namespace shale::kernels {

// Finds the level nearest to a magnitude in [0, 1] with two table look-ups instead of a search. The
// upper 16 bits of the magnitude select a cell. Cells are so narrow that each has at most one
// boundary between levels, so the nearest level is the one at the start of the cell or the next.
struct DynamicLookup {
  // The cell of 2^-23, below which there is no boundary.
  static constexpr int32_t kFirstCell = 0x3400;
  static constexpr int32_t kLastCell = 0x3f80;  // the cell of 1
  static constexpr int32_t kCells = kLastCell - kFirstCell + 1;

  std::array<int32_t, kCells> level_at{};  // level at a cell's start, counted from map.zero
  // Boundary between a level and the next one; infinity for the last level.
  std::array<float, 256> boundary{};

  constexpr explicit DynamicLookup(const DynamicMap& map);
};

constexpr DynamicLookup::DynamicLookup(const DynamicMap& map) {
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

inline constexpr DynamicLookup kSignedLookup(kSignedMap);
inline constexpr DynamicLookup kUnsignedLookup(kUnsignedMap);

// A smaller block scale counts as zero, because its inverse must be finite.
inline constexpr float kSmallestScale = 0x1p-124f;

}  // namespace shale::kernels
