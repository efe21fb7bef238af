#pragma once

#include <utility>
#include <vector>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// The collectives that were captured with a graph (runtime/tensor/graph.h). A replay runs them on
// the device; their groups learn of it here.
class CapturedCollectives {
 public:
  CapturedCollectives() = default;
  // Those that were captured since the last time somebody took them.
  explicit CapturedCollectives(const ShardGroups& groups);
  // The graph has been queued on `stream`.
  void replayed(void* stream) const;

 private:
  std::vector<std::pair<ProcessGroup*, std::vector<CollectiveCall>>> calls_;
};

}  // namespace shale::comm
