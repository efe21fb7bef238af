#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/tensor/allocator.h"

namespace shale::models {

// Peak memory of an allocator, in bytes.
struct MemoryPeak {
  MemoryPeak() = default;
  explicit MemoryPeak(const MemoryStats& stats)
      : by_tag(stats.at_peak), allocated(stats.peak_allocated), reserved(stats.peak_reserved) {}

  std::array<int64_t, kMemoryTags> by_tag{};  // breakdown of `allocated`
  int64_t allocated = 0;                      // bytes in use, including rounding to blocks
  int64_t reserved = 0;                       // bytes held from the system, including free blocks

  friend bool operator==(const MemoryPeak&, const MemoryPeak&) = default;
};

// Peak memory of one rank of a run.
struct RankMemory {
  int rank = 0;
  int threads = 1;  // threads per kernel, each with its own scratch memory
  MemoryPeak device;
  std::optional<MemoryPeak> host;  // offloaded memory; empty: nothing is offloaded

  friend bool operator==(const RankMemory&, const RankMemory&) = default;
};

// File in a run's folder: a line of JSON for each rank, in rank order.
inline constexpr const char* kMemoryFile = "memory.jsonl";
std::string to_json(const RankMemory& memory);  // Returns one line of JSON, without newline.
// Throws MissingInputError if the run has no such file, DataError with path and line for malformed
// lines.
std::vector<RankMemory> read_memory(const std::string& run);

}  // namespace shale::models
