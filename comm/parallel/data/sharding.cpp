#include "shale/comm/parallel/data/sharding.h"

#include <chrono>

namespace shale::comm {

void ShardingContext::wait(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  work.wait();
  exposed_seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace shale::comm
