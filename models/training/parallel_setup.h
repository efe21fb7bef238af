#pragma once

#include <memory>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/training/config.h"

namespace shale::models {

// How the ranks of a training run share a model, as the options say.
struct ParallelSetup {
  std::unique_ptr<comm::Mesh> replicas;  // axes "replica" and "shard"; null: one shard group
  std::unique_ptr<comm::Mesh> reshard;   // axes "outer" and "inner"; null: no smaller group
  comm::ShardGroups groups;
  comm::DataParallelOptions options;
};

// Throws ConfigError for options that do not fit the number of ranks; resolve() has done so before
// there were groups. Collective. `all` and `tier`, where what is offloaded goes, outlive the
// result.
ParallelSetup parallel_setup(const TrainConfig& config, DType compute, comm::ProcessGroup& all,
                             offload::HostTier* tier);

// Throws ConfigError for combinations of sharding options that cannot be.
void check_parallel(const TrainConfig& config, int ranks);

// Throws ConfigError for what --cuda-graph cannot capture: work that needs the host, or that is not
// the same at each replay. `all`: the ranks.
void check_graphs(const TrainConfig& config, const Device& device, const comm::ProcessGroup& all);

}  // namespace shale::models
