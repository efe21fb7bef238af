#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/base/dtype.h"
#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::test {

// Engines that the stand-in offers for every graph, its first choice first.
inline constexpr int kEngines = 2, kNonDeterministicEngine = 0;

// Calls that the stand-in has counted, and functions that it needs from the program.
struct CudnnCounts {
  int64_t plans = 0, executions = 0;
  int64_t non_deterministic = 0;  // executions with such an engine
  // Runs work in stream order (immediately without a stream), and is told what memory it wrote.
  std::function<void(void* stream, std::function<void()> work)> queue{};
  std::function<void(void* stream, const void* data, size_t bytes)> written{};
};

}  // namespace shale::test
