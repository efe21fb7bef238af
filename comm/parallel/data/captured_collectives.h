#pragma once

#include <utility>
#include <vector>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// Collectives that were captured with a graph (runtime/tensor/graph.h). A replay of the graph runs
// them on the device without their groups; this class tells the groups about it.
class CapturedCollectives {
 public:
  CapturedCollectives() = default;
  // Takes from the groups all collectives that were captured since the last time.
  explicit CapturedCollectives(const ShardGroups& groups);
  // Call it after the graph has been queued on `stream`.
  void replayed(void* stream) const;

 private:
  std::vector<std::pair<ProcessGroup*, std::vector<CollectiveCall>>> calls_;
};

}  // namespace shale::comm
