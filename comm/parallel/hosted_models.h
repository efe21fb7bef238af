#pragma once

#include <vector>

#include "shale/comm/parallel/hosted_ranks.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Models of the mesh ranks in a process (HostedRanks), one for each. Data parallelism
// (ShardGroups::hosted) is made for the first model, and the others join it. Models of context
// ranks have equal values and add their gradients to the same parameters. Models of tensor ranks
// have other shards, which become further parameters of the same unit.
class HostedModels {
 public:
  // models: identical models without memory, already sharded (Parallel::cut()), ordered by context
  // rank, then by tensor rank. tensor: number of tensor ranks. All arguments must outlive this
  // object.
  HostedModels(HostedRanks& ranks, std::vector<Module*> models, int tensor);

  HostedRanks& ranks() const { return ranks_; }
  const std::vector<Module*>& models() const { return models_; }
  int tensor() const { return tensor_; }
  int context() const { return static_cast<int>(models_.size()) / tensor_; }
  // Returns the module with the name of `module` in each model. `module` belongs to the first model
  // and is first in the result.
  std::vector<Module*> copies_of(const Module& module) const;

 private:
  HostedRanks& ranks_;
  const std::vector<Module*> models_;
  const int tensor_;
};

}  // namespace shale::comm
