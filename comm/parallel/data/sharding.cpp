#include "shale/comm/parallel/data/sharding.h"

#include <chrono>
#include <exception>

#include "shale/base/clock.h"
#include "shale/base/error.h"

namespace shale::comm {

void let_go(Work work) {
  if (std::uncaught_exceptions() > 0) return;
  try {
    work.wait();
  } catch (const std::exception&) {
  }
}

Context& ShardingContext::context() const {
  if (memory->context == nullptr) {
    throw InternalError(
        "data parallel: the context of the model has ended, expected a context that outlives the "
        "models that are sharded over it: declare it before them");
  }
  return *memory->context;
}

void ShardingContext::wait(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  work.wait();
  exposed_seconds += seconds_since(start);
}

}  // namespace shale::comm
