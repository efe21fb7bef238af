#pragma once

#include <memory>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/training/data_ranks.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"

namespace shale::models {

// How the ranks of a training run share a model, as the options say.
struct ParallelSetup {
  std::unique_ptr<comm::Mesh> mesh;     // of comm::parallel_axes()
  std::unique_ptr<comm::Mesh> reshard;  // axes "outer" and "inner"; null: no smaller group
  comm::ShardGroups groups;
};

// Over how many ranks each axis goes; ParallelSizes::shard is not 0. Throws ConfigError, naming
// options, for what does not fit the number of ranks.
comm::ParallelSizes parallel_sizes(const RunConfig& config, int ranks);
// Where the ranks stand.
comm::MeshLayout parallel_layout(const RunConfig& config, int ranks);
DataRanks data_ranks(const comm::MeshLayout& mesh, int rank);

// Throws ConfigError for options that do not fit the number of ranks; resolve() has done so before
// there were groups. Collective. `all` outlives the result.
ParallelSetup parallel_setup(const RunConfig& config, comm::ProcessGroup& all);

// The steps that the options ask for.
StepOptions step_options(const RunConfig& config, DType compute, int64_t micro_batches);

// Throws ConfigError for combinations of sharding options that cannot be.
void check_parallel(const RunConfig& config, int ranks);

// Throws ConfigError for what --cuda-graph cannot capture: work that needs the host, or that is not
// the same at each replay. `all`: the ranks.
void check_graphs(const RunConfig& config, const Device& device, const comm::ProcessGroup& all);

}  // namespace shale::models
