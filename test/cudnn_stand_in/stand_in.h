#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/base/dtype.h"
#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::test {

// Engines that the stand-in for cuDNN knows for every graph, its first guess first.
inline constexpr int kEngines = 2, kNonDeterministicEngine = 0;

// What it has been asked to do, and what it asks of the program.
struct CudnnCounts {
  int64_t plans = 0, executions = 0;
  int64_t non_deterministic = 0;  // of the executions, those of such an engine
  // Does work in the order of a stream, and is told what memory it has written. Without a stream
  // work is done at once.
  std::function<void(void* stream, std::function<void()> work)> queue{};
  std::function<void(void* stream, const void* data, size_t bytes)> written{};
};

}  // namespace shale::test
