#pragma once

#include <vector>

#include "shale/comm/parallel/hosted_ranks.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// The models of the mesh ranks of a process (HostedRanks), one for each. Data parallelism
// (ShardGroups::hosted) goes by the first one, and takes the others in: of context ranks, whose
// values are equal, as further gradients of one parameter; of tensor ranks, whose values are other
// shards, as further parameters of the same unit.
class HostedModels {
 public:
  // models: by context rank, then by tensor rank, of which there are `tensor`; alike, already cut,
  // without memory. All outlive this.
  HostedModels(HostedRanks& ranks, std::vector<Module*> models, int tensor);

  HostedRanks& ranks() const { return ranks_; }
  const std::vector<Module*>& models() const { return models_; }
  int tensor() const { return tensor_; }
  int context() const { return static_cast<int>(models_.size()) / tensor_; }
  // What a module of the first model is in each of them, itself first.
  std::vector<Module*> copies_of(const Module& module) const;

 private:
  HostedRanks& ranks_;
  const std::vector<Module*> models_;
  const int tensor_;
};

}  // namespace shale::comm
