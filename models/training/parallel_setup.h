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

// Returns the parallel degrees for `processes` processes, including those derived from the number
// of processes. Throws ConfigError, naming options, if the degrees do not match that number.
comm::Degrees parallel_degrees(const RunConfig& config, int processes);
// Returns the number of processes along each parallel axis.
comm::ParallelSizes parallel_sizes(const RunConfig& config, int processes);
// Returns the mesh coordinates of all ranks.
comm::MeshLayout parallel_layout(const RunConfig& config, int ranks);
// Returns the coordinates of each rank, such as "pipeline 1, tensor 0"; empty strings if all axes
// are data-parallel.
std::vector<std::string> places_of(const RunConfig& config, const comm::MeshLayout& mesh);
StragglerWatch::Options straggler_options(const RunConfig& config, const comm::MeshLayout& mesh);
DataRanks data_ranks(const RunConfig& config, const comm::MeshLayout& mesh, int rank);
// Returns the schedule of the --pipeline ranks for `micro_batches` micro-batches. Throws
// ConfigError if the schedule does not support that number.
comm::Schedule pipeline_schedule(const RunConfig& config, int64_t micro_batches);
// Makes the mesh that the options request. `all` and the context must outlive the result. Throws
// ConfigError if the options do not match the number of ranks; resolve() has checked that before.
// Collective.
std::unique_ptr<comm::Parallel> make_parallel(const RunConfig& config, comm::ProcessGroup& all,
                                              Context& context);
// Shards the task's model over the mesh ranks, before it has memory. Collective. Throws ConfigError
// if the model cannot be sharded like this.
void cut_model(const RunConfig& config, Task& task, comm::Parallel& parallel);
// Returns the pipeline of a task's model, for StepModel, and sets the pipeline's groups in
// `parallel`. Throws ConfigError for a model that is not a list of pieces, and if its pieces cannot
// be divided into the requested stages. Collective.
StepPipeline parallel_pipeline(const RunConfig& config, Task& task, int64_t micro_batches,
                               comm::Parallel& parallel);

// Returns true if ranks gather weights as the fp8 values that GEMMs read
// (ShardingOptions::gather_fp8). They do so whenever possible, because results are bit-identical.
bool gathers_fp8(const RunConfig& config);

// Returns the step options that the run's options request.
StepOptions step_options(const RunConfig& config, DType compute, int64_t micro_batches);

// Throws ConfigError for impossible combinations of sharding options.
void check_parallel(const RunConfig& config, int ranks);

// Throws ConfigError for work that --cuda-graph cannot capture, because it needs the host or
// differs between replays. all: group of all ranks.
void check_graphs(const RunConfig& config, const Device& device, const comm::ProcessGroup& all);

}  // namespace shale::models
