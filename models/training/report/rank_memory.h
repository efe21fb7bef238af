#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/tensor/allocator.h"

namespace shale::models {

// The most memory that an allocator had in use, and that it held, in bytes.
struct MemoryPeak {
  MemoryPeak() = default;
  explicit MemoryPeak(const MemoryStats& stats)
      : by_tag(stats.at_peak), allocated(stats.peak_allocated), reserved(stats.peak_reserved) {}

  std::array<int64_t, kMemoryTags> by_tag{};  // of `allocated`
  int64_t allocated = 0;                      // in use, rounding to blocks included
  int64_t reserved = 0;                       // held from the system, free blocks included

  friend bool operator==(const MemoryPeak&, const MemoryPeak&) = default;
};

// What one rank of a run needed at most, from its first step to its last.
struct RankMemory {
  int rank = 0;
  int threads = 1;  // of a kernel: each has scratch memory of its own
  MemoryPeak device;
  std::optional<MemoryPeak> host;  // of what is offloaded; nullopt: nothing is

  friend bool operator==(const RankMemory&, const RankMemory&) = default;
};

// In the folder of a run: a line of JSON for each rank, in rank order.
inline constexpr const char* kMemoryFile = "memory.jsonl";
std::string to_json(const RankMemory& memory);  // a line, without its end
// Throws MissingInputError if the run has no such file, DataError with path and line for what is
// malformed.
std::vector<RankMemory> read_memory(const std::string& run);

}  // namespace shale::models
