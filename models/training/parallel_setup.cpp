#include "shale/models/training/parallel_setup.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/block_codes.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/compatibility.h"
#include "shale/models/training/make_optimizer.h"

namespace shale::models {
namespace {

// Returns the code of quantized values. 4 bits use NF4, which has the most levels near 0, where
// most weights are.
std::optional<kernels::BlockCode> code_of(CodedBits bits) {
  if (bits == CodedBits::kNone) return {};
  return bits == CodedBits::k8 ? kernels::BlockCode::kInt8 : kernels::BlockCode::kNf4;
}

// Maximum number of micro-batches per step in a pipeline.
constexpr int64_t kMostMicroBatches = 1 << 20;

comm::ScheduleKind kind_of(const RunConfig& config) {
  using enum comm::ScheduleKind;
  return config.pipeline_schedule.value_or(config.pipeline_chunks > 1 ? kInterleaved : k1F1B);
}

void check_pipeline(const RunConfig& config, int64_t micro_batches) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) throw ConfigError(cat(what...));
  };
  if (config.pipeline == 1) {
    want(!config.pipeline_schedule && config.pipeline_chunks == 0,
         "--pipeline-schedule and --pipeline-chunks need --pipeline above 1 (found 1)");
    return;
  }
  const comm::Schedule schedule = pipeline_schedule(config, micro_batches);
  want(config.recompute != Recompute::kFull || !schedule.splits_backward(),
       "--recompute full is incompatible with --pipeline-schedule ",
       comm::schedule_name(kind_of(config)),
       ", which splits the backward pass; use 1f1b or interleaved, or --recompute selective");
}

// Returns the options of the axes that divide the model, such as "--pipeline 2, --tensor 4".
std::string model_axes(const RunConfig& config) {
  std::string axes;
  for (const auto& [flag, size] :
       {std::pair("--pipeline ", config.pipeline), std::pair("--context ", config.context),
        std::pair("--tensor ", config.tensor)}) {
    if (size > 1) axes += cat(axes.empty() ? "" : ", ", flag, size);
  }
  return axes;
}

constexpr int kMostHosted = 1024;  // maximum mesh ranks per process; each has a model and a stack

// Returns how many --tensor and --context ranks a process hosts: 1, or more if there are fewer
// processes than ranks.
int ranks_per_process(const RunConfig& config, int processes) {
  if (config.ranks_per_process > 0) return config.ranks_per_process;
  const int64_t stages = config.pipeline, ranks = int64_t{config.context} * config.tensor;
  const bool is_short = processes < stages * ranks && processes % stages == 0;
  if (!is_short || ranks % (processes / stages) != 0) return 1;
  const int64_t here = ranks / (processes / stages);
  return here <= kMostHosted && std::has_single_bit(static_cast<uint64_t>(here))
             ? static_cast<int>(here)
             : 1;
}

}  // namespace

comm::Degrees parallel_degrees(const RunConfig& config, int processes) {
  comm::Degrees degrees{.tensor = config.tensor,
                        .context = config.context,
                        .expert = config.expert,
                        .pipeline = config.pipeline};
  const int here = ranks_per_process(config, processes);
  degrees.tensor_here = std::gcd(here, config.tensor);
  degrees.context_here = here / degrees.tensor_here;
  if (here > kMostHosted || !std::has_single_bit(static_cast<unsigned>(here)) ||
      config.context % degrees.context_here != 0) {
    throw ConfigError(cat("--ranks-per-process is ", here, " on ", processes,
                          processes == 1 ? " process" : " processes", " with ", model_axes(config),
                          ", expected a power of two, at most ", kMostHosted,
                          ", that divides --tensor times --context"));
  }
  const int64_t of_model = degrees.model_processes();
  if (of_model > processes || processes % of_model != 0) {
    throw ConfigError(cat(model_axes(config), ": one copy of the model needs ", of_model,
                          " ranks, found ", processes, "; start a multiple of ", of_model,
                          " processes"));
  }
  const int data = processes / static_cast<int>(of_model);
  degrees.shard = config.shard_ranks > 0 ? config.shard_ranks : data;
  if (data % degrees.shard != 0) {
    throw ConfigError(cat("--shard-ranks is ", degrees.shard, ", expected a divisor of the ", data,
                          data == 1 ? " rank" : " ranks", " of data parallelism"));
  }
  degrees.replica = data / degrees.shard;
  return degrees;
}

comm::ParallelSizes parallel_sizes(const RunConfig& config, int processes) {
  return comm::process_sizes(parallel_degrees(config, processes));
}

comm::MeshLayout parallel_layout(const RunConfig& config, int ranks) {
  return {comm::parallel_axes(parallel_sizes(config, ranks), ranks), ranks};
}

std::vector<std::string> places_of(const RunConfig& config, const comm::MeshLayout& mesh) {
  std::vector<std::string> places;
  if (mesh.size("shard") == mesh.ranks() && config.expert == 1) return places;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    places.push_back(mesh.place_of(rank));
    if (config.expert == 1) continue;
    int place = 0;  // index of this rank among those that share the experts
    for (const char* const axis : {"shard", "context", "tensor"}) {
      place = place * mesh.size(axis) + mesh.coordinate(axis, rank);
    }
    places.back() += cat(", expert ", place % config.expert);
  }
  return places;
}

StragglerWatch::Options straggler_options(const RunConfig& config, const comm::MeshLayout& mesh) {
  StragglerWatch::Options options{.places = places_of(config, mesh)};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    options.stages.push_back(mesh.coordinate("pipeline", rank));
  }
  return options;
}

DataRanks data_ranks(const RunConfig& config, const comm::MeshLayout& mesh, int rank) {
  const int shards = mesh.size("shard");
  DataRanks data{.rank = mesh.coordinate("replica", rank) * shards + mesh.coordinate("shard", rank),
                 .count = mesh.size("replica") * shards};
  // The last stage has the losses of a micro-batch. They are equal along the other axes that divide
  // the model.
  const bool returns = config.pipeline > 1 && kind_of(config) == comm::ScheduleKind::kZbV;
  const int last = returns ? 0 : mesh.size("pipeline") - 1;
  for (int r = 0; r < mesh.ranks(); ++r) {
    const bool is_last = mesh.coordinate("pipeline", r) == last;
    const bool is_first = mesh.coordinate("context", r) == 0 && mesh.coordinate("tensor", r) == 0;
    if (is_last && is_first) data.losses.push_back(r);
  }
  data.counts = mesh.coordinate("pipeline", rank) == last && mesh.coordinate("tensor", rank) == 0;
  return data;
}

std::unique_ptr<comm::Parallel> make_parallel(const RunConfig& config, comm::ProcessGroup& all,
                                              Context& context) {
  check_parallel(config, all.size());
  return std::make_unique<comm::Parallel>(
      all, context, parallel_degrees(config, all.size()),
      comm::ParallelOptions{.overlap = !config.no_overlap,
                            .row_pieces = config.tensor_pieces,
                            .context_kind = config.context_kind,
                            .reshard = config.reshard_ranks,
                            .joins_matrices = optimizer_row(config.optimizer).joins_matrices});
}

comm::Schedule pipeline_schedule(const RunConfig& config, int64_t micro_batches) {
  const comm::ScheduleKind kind = kind_of(config);
  const int chunks = config.pipeline_chunks > 0         ? config.pipeline_chunks
                     : kind == comm::ScheduleKind::kZbV ? 2
                                                        : 1;
  if (micro_batches > kMostMicroBatches) {
    throw ConfigError(cat("--pipeline with ", micro_batches,
                          " micro-batches per step, expected at most ", kMostMicroBatches));
  }
  return comm::make_schedule(kind, config.pipeline, chunks, static_cast<int>(micro_batches));
}

StepPipeline parallel_pipeline(const RunConfig& config, Task& task, int64_t micro_batches,
                               comm::Parallel& parallel) {
  StepPipeline pipeline{.group = &parallel.mesh().group("pipeline"), .pieces = task.pieces()};
  if (pipeline.pieces.empty()) {
    throw ConfigError(cat("--pipeline ", config.pipeline,
                          ": this model cannot be split into stages; use --pipeline 1"));
  }
  pipeline.plan = comm::make_stage_plan(pipeline.pieces, pipeline_schedule(config, micro_batches));
  pipeline.boundary = task.boundary(config.micro_batch);
  pipeline.run = [&task](const comm::PieceRange& some, const Tensor& x, const DeviceBatch& batch) {
    return task.run_pieces(some, x, batch);
  };
  parallel.stage(pipeline.pieces, pipeline.plan, /*shards_states=*/config.zero > 0);
  return pipeline;
}

void cut_model(const RunConfig& config, Task& task, comm::Parallel& parallel) {
  if (config.context > 1 && task.plan().tokens == 0) {
    throw ConfigError(
        "--context: this model does not support context parallelism; use --context 1");
  }
  task.cut(parallel);
}

bool gathers_fp8(const RunConfig& config) {
  return config.dtype == Precision::kFp8 && config.zero == 3 && !config.cuda_graph &&
         config.offload == OffloadKind::kNone && config.quantize_gathers == CodedBits::kNone;
}

StepOptions step_options(const RunConfig& config, DType compute, int64_t micro_batches) {
  StepOptions options{.micro_batches = micro_batches,
                      .clip = static_cast<float>(config.clip),
                      .graphs = config.cuda_graph};
  options.parallel = {.compute = compute,
                      .reduce = config.grad_dtype,
                      .reshard_after_forward = config.reshard_ranks > 0
                                                   ? comm::ReshardAfterForward::kSmallGroup
                                                   : comm::ReshardAfterForward::kAuto,
                      .stage = config.zero,
                      .overlap = !config.no_overlap,
                      .reproducible = config.reproducible,
                      .gather_code = code_of(config.quantize_gathers),
                      .reduce_code = code_of(config.quantize_reductions),
                      .gather_fp8 = gathers_fp8(config),
                      .seed = static_cast<uint64_t>(config.seed)};
  // Gradient shards move to the host too, because the optimizer step on the host reads them.
  options.offload = {.optimizer = config.offload != OffloadKind::kNone,
                     .gradients = config.zero >= 2,
                     .parameters = config.offload == OffloadKind::kParameters,
                     .folder = config.offload_folder,
                     .activations = config.offload_activations,
                     .share = config.offload_ratio};
  if (config.skip_outliers > 0) {
    options.skip_outliers = {.sigmas = config.skip_outliers};
  }
  options.skip_non_finite = config.skip_non_finite > 0;
  if (config.outer_every > 0) {
    options.local_steps = {.every = config.outer_every,
                           .start = config.outer_start,
                           .lr = static_cast<float>(config.outer_lr),
                           .momentum = static_cast<float>(config.outer_momentum),
                           .in_turn = config.outer_streaming};
  }
  if (config.loss_scale > 0) {
    options.loss_scale = {.initial_scale = static_cast<float>(config.loss_scale)};
  }
  return options;
}

namespace {

void check_experts(const RunConfig& config, int shard_ranks) {
  const int ranks = shard_ranks * config.tensor;
  if (ranks % config.expert == 0) return;
  throw ConfigError(cat("--expert ", config.expert, ": expected a divisor of the ", ranks,
                        ranks == 1 ? " rank" : " ranks",
                        config.tensor > 1 ? " that share the layers of a stage"
                                          : " that share the sharded parameters"));
}

}  // namespace

void check_parallel(const RunConfig& config, int ranks) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) throw ConfigError(cat(what...));
  };
  check_compatible(incompatible_run_options(), config);
  const comm::ParallelSizes sizes = parallel_sizes(config, ranks);
  const int shard_ranks = sizes.shard * sizes.context, data = sizes.replica * sizes.shard;
  want(config.shard_ranks == 0 || config.zero > 0, "--shard-ranks is ", config.shard_ranks,
       ", but --zero 0 shards nothing; use --zero 1, 2 or 3");
  want(config.reshard_ranks == 0 || config.zero == 3, "--reshard-ranks is ", config.reshard_ranks,
       ", but --zero ", config.zero, " keeps parameters whole; use --zero 3");
  want(config.reshard_ranks == 0 || shard_ranks % config.reshard_ranks == 0, "--reshard-ranks is ",
       config.reshard_ranks, ", expected a divisor of the ", shard_ranks,
       " ranks that share the parameters");
  want(config.offload_ratio == 1 || config.offload != OffloadKind::kNone, "--offload-ratio is ",
       config.offload_ratio, ", which needs --offload (found --offload none)");
  want(config.offload != OffloadKind::kParameters || config.zero == 3, "--offload ",
       config.offload_folder.empty() ? "params" : "nvme", ", but --zero ", config.zero,
       " keeps parameters whole on the device; use --zero 3");
  want(config.check_replicas == 0 || config.zero < 3 || sizes.replica > 1 || sizes.tensor > 1,
       "--check-replicas is ", config.check_replicas,
       ", but --zero 3 leaves one copy of each parameter; use --shard-ranks, or --zero 0, 1 or 2");
  check_pipeline(config, config.global_batch / (config.micro_batch * data));
  check_experts(config, shard_ranks);
  if (!config.reproducible) return;
  want(std::has_single_bit(static_cast<uint64_t>(data)),
       "--reproducible needs a number of data-parallel ranks that is a power of two, found ", data);
  const auto want_tree = [&](const char* flag, int64_t batch) {
    const int64_t micro_batches = batch / (config.micro_batch * data);
    want(std::has_single_bit(static_cast<uint64_t>(micro_batches)),
         "--reproducible needs a number of micro-batches per rank that is a power of two, found ",
         micro_batches, " with this ", flag);
  };
  want_tree("--global-batch", config.global_batch);
  for (const BatchPhase& phase : parse_batch_ramp(config.batch_ramp)) {
    want_tree("--batch-ramp", phase.global_batch);
  }
}

void check_graphs(const RunConfig& config, const Device& device, const comm::ProcessGroup& all) {
  if (!config.cuda_graph) return;
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) throw ConfigError(cat("--cuda-graph needs ", what...));
  };
  want(device.type != DeviceType::kCpu, "a GPU, found --device ", config.device,
       "; use --device cuda or emu");
  want(all.size() == 1 || all.backend() == "nccl", "NCCL for several ranks, found MPI for ",
       all.size(), " ranks; use one rank, or --comm nccl with a GPU for each");
  const comm::ParallelSizes sizes = parallel_sizes(config, all.size());
  const int64_t samples = config.micro_batch * sizes.replica * sizes.shard;
  const int64_t micro_batches = config.global_batch / samples;
  want(!config.reproducible || micro_batches == 1,
       "one micro-batch per step with --reproducible, found ", micro_batches,
       "; use --global-batch ", config.micro_batch * all.size());
}

}  // namespace shale::models
