#pragma once

#include <utility>
#include <vector>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// Collectives captured with a graph (runtime/tensor/graph.h). A replay runs them on the device;
// this class then informs their groups.
class CapturedCollectives {
 public:
  CapturedCollectives() = default;
  // Takes the collectives captured since they were last taken from the groups.
  explicit CapturedCollectives(const ShardGroups& groups);
  // Call it after the graph has been queued on `stream`.
  void replayed(void* stream) const;

 private:
  std::vector<std::pair<ProcessGroup*, std::vector<CollectiveCall>>> calls_;
};

}  // namespace shale::comm
