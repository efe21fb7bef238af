#pragma once

#include <memory>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/pipeline/stage_plan.h"
#include "shale/models/training/checks/straggler_watch.h"
#include "shale/models/training/data_ranks.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/task.h"
#include "shale/runtime/nn/cut_sequence.h"
#include "shale/runtime/nn/exchange.h"
#include "shale/runtime/nn/expert_exchange.h"

namespace shale::models {

// How the ranks of a training run share a model, as the options say.
struct ParallelSetup {
  std::unique_ptr<comm::Mesh> mesh;           // of comm::parallel_axes()
  std::unique_ptr<comm::Mesh> reshard;        // axes "outer" and "inner"; null: no smaller group
  std::unique_ptr<comm::StageGroups> stages;  // null: no pipeline
  comm::ShardGroups groups;
  std::unique_ptr<comm::Mesh> expert;  // likewise, of ranks with the same, and different experts
  // Of the tensor ranks, of the context ranks and of those with different experts, in Lane::kModel;
  // or null.
  std::unique_ptr<comm::ProcessGroup> layers, tokens, rows;
  std::unique_ptr<nn::Exchange> tensor;         // null: layers are not cut; after cut_model()
  std::unique_ptr<nn::CutSequence> sequence;    // null: sequences are whole; likewise
  std::unique_ptr<nn::ExpertExchange> experts;  // null: every rank has all experts; likewise
};

// Over how many ranks each axis goes; ParallelSizes::shard is not 0. Throws ConfigError, naming
// options, for what does not fit the number of ranks.
comm::ParallelSizes parallel_sizes(const RunConfig& config, int ranks);
// Where the ranks stand.
comm::MeshLayout parallel_layout(const RunConfig& config, int ranks);
// By rank, "pipeline 1, tensor 0"; nothing where their number says it, as all share one model.
std::vector<std::string> places_of(const RunConfig& config, const comm::MeshLayout& mesh);
StragglerWatch::Options straggler_options(const RunConfig& config, const comm::MeshLayout& mesh);
DataRanks data_ranks(const RunConfig& config, const comm::MeshLayout& mesh, int rank);
// Of --pipeline ranks, for so many micro-batches. Throws ConfigError for what does not fit.
comm::Schedule pipeline_schedule(const RunConfig& config, int64_t micro_batches);
// The pipeline of a task's model, for StepModel, and in `setup` its groups. Throws ConfigError for
// a model that is no list of pieces, and for a split that does not fit. Collective.
StepPipeline parallel_pipeline(const RunConfig& config, Task& task, int64_t micro_batches,
                               ParallelSetup& setup);

// Throws ConfigError for options that do not fit the number of ranks; resolve() has done so before
// there were groups. Collective. `all` outlives the result.
ParallelSetup parallel_setup(const RunConfig& config, comm::ProcessGroup& all);

// Cuts the layers of the task's model, and its sequences, if the options say so, before it gets its
// memory. Collective. Throws ConfigError for what cannot be cut so.
void cut_model(const RunConfig& config, Task& task, ParallelSetup& setup);

// Whether weights travel as the numbers of fp8 that products read (ShardingOptions::gather_fp8):
// wherever they can, as no bit of a result depends on it.
bool gathers_fp8(const RunConfig& config);

// The steps that the options ask for.
StepOptions step_options(const RunConfig& config, DType compute, int64_t micro_batches);

// Throws ConfigError for combinations of sharding options that cannot be.
void check_parallel(const RunConfig& config, int ranks);

// Throws ConfigError for what --cuda-graph cannot capture: work that needs the host, or that is not
// the same at each replay. `all`: the ranks.
void check_graphs(const RunConfig& config, const Device& device, const comm::ProcessGroup& all);

}  // namespace shale::models
