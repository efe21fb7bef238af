#pragma once

#include <memory>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/models/training/checks/straggler_watch.h"
#include "shale/models/training/data_ranks.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/task.h"

namespace shale::models {

// The degrees that the options ask for on so many processes, all filled in. Throws ConfigError,
// naming options, for what does not fit their number.
comm::Degrees parallel_degrees(const RunConfig& config, int processes);
// Of these, over how many processes each axis goes.
comm::ParallelSizes parallel_sizes(const RunConfig& config, int processes);
// Where the ranks stand.
comm::MeshLayout parallel_layout(const RunConfig& config, int ranks);
// By rank, "pipeline 1, tensor 0"; nothing where their number says it, as all share one model.
std::vector<std::string> places_of(const RunConfig& config, const comm::MeshLayout& mesh);
StragglerWatch::Options straggler_options(const RunConfig& config, const comm::MeshLayout& mesh);
DataRanks data_ranks(const RunConfig& config, const comm::MeshLayout& mesh, int rank);
// Of --pipeline ranks, for so many micro-batches. Throws ConfigError for what does not fit.
comm::Schedule pipeline_schedule(const RunConfig& config, int64_t micro_batches);
// The mesh that the options ask for. Throws ConfigError for options that do not fit the number of
// ranks; resolve() has done so before there were groups. Collective. `all` and the context outlive
// the result.
std::unique_ptr<comm::Parallel> make_parallel(const RunConfig& config, comm::ProcessGroup& all,
                                              Context& context);
// Gives the mesh ranks of this process their parts of the task's model, before it has memory.
// Collective. Throws ConfigError for what cannot be cut so.
void cut_model(const RunConfig& config, Task& task, comm::Parallel& parallel);
// The pipeline of a task's model, for StepModel, and in `parallel` its groups. Throws ConfigError
// for a model that is no list of pieces, and for a split that does not fit. Collective.
StepPipeline parallel_pipeline(const RunConfig& config, Task& task, int64_t micro_batches,
                               comm::Parallel& parallel);

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
