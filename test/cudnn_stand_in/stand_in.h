#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/base/dtype.h"
#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::test {

// Number of engines that the stand-in offers for every graph, and the number of the engine that it
// lists first.
inline constexpr int kEngines = 2, kNonDeterministicEngine = 0;

// Counts of calls to the stand-in, and functions that it needs from the program.
struct CudnnCounts {
  int64_t plans = 0, executions = 0;
  int64_t non_deterministic = 0;  // executions with engine kNonDeterministicEngine
  // Runs work in stream order, or immediately without a stream. `written`, the second function, is
  // called with the memory that the work wrote.
  std::function<void(void* stream, std::function<void()> work)> queue{};
  std::function<void(void* stream, const void* data, size_t bytes)> written{};
};

}  // namespace shale::test
