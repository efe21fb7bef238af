#pragma once

#include <vector>

#include "shale/comm/parallel/hosted_ranks.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Models of the mesh ranks of a process (HostedRanks), one for each. Data parallelism
// (ShardGroups::hosted) is built from the first model and adds the other models to it. Models of
// context ranks have equal values and contribute further gradients of one parameter; models of
// tensor ranks have other shards, which become further parameters of the same unit.
class HostedModels {
 public:
  // models: identical, without memory, ordered by context rank, then by tensor rank, already
  // sharded (Parallel::cut()). tensor: number of tensor ranks. All arguments outlive this object.
  HostedModels(HostedRanks& ranks, std::vector<Module*> models, int tensor);

  HostedRanks& ranks() const { return ranks_; }
  const std::vector<Module*>& models() const { return models_; }
  int tensor() const { return tensor_; }
  int context() const { return static_cast<int>(models_.size()) / tensor_; }
  // Returns the module with the name of `module` in each of the models. `module` belongs to the
  // first model and comes first.
  std::vector<Module*> copies_of(const Module& module) const;

 private:
  HostedRanks& ranks_;
  const std::vector<Module*> models_;
  const int tensor_;
};

}  // namespace shale::comm
