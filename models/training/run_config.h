#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/config.h"
#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/comm/parallel/pipeline/schedule.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/optim/schedule.h"

namespace shale::comm {
class World;
}

namespace shale::models {

// The values of --optimizer.
enum class OptimizerKind {
  kAdamW,
  kAdamWBF16,
  kAdamW8bit,
  kLion,
  kAdafactor,
  kSgd,
  kMuon,
  kLamb,
  kOneBitAdam
};

// The values of --dtype: data type of parameters and activations, and of the operands of GEMMs.
enum class Precision { kAuto, kF32, kTf32, kBF16, kF16, kFp8 };
std::string_view precision_name(Precision precision);  // "bf16", as --dtype says it

// What shares a scale with --dtype fp8.
enum class Fp8Scaling { kBlock, kTensor };

// What lies in host memory: the optimizer's states and its step, and in stage 3 parameters.
enum class OffloadKind { kNone, kOptimizer, kParameters };

// In how many bits what travels does.
enum class CodedBits { kNone, k8, k4 };

// How a run trains, whatever it trains. What is trained has options of its own (models/language).
struct RunConfig {
  // batch
  int64_t steps = 1000;
  int64_t micro_batch = 8;   // samples per rank and forward
  int64_t global_batch = 0;  // samples per step; 0: micro_batch * ranks
  std::string batch_ramp;    // see parse_batch_ramp()

  // optimizer; negative: derived, see describe()
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double lr = -1;
  double min_lr = -1;
  int64_t warmup_steps = -1;
  optim::Decay schedule = optim::Decay::kCosine;
  int64_t decay_steps = -1;  // of Decay::kWsd, as decay_shape
  optim::DecayShape decay_shape = optim::DecayShape::kLinear;
  double beta1 = -1, beta2 = -1, eps = -1;  // still negative: the optimizer has none
  double weight_decay = 0.1;
  std::string param_groups;  // see parse_parameter_groups()
  double momentum = -1;
  double clip = 1;           // 0: off
  double skip_outliers = 0;  // standard deviations; 0: off
  double ema = 0;            // decay of the average of the weights, which is validated; 0: none

  // device
  std::string device = "auto";
  int threads = 0;  // 0: the rank's share of the node
  Precision dtype = Precision::kAuto;
  int64_t fp8_kept_blocks = 1;
  Fp8Scaling fp8_scaling = Fp8Scaling::kBlock;
  int workers = 1;            // threads that make batches
  double loss_scale = -1;     // at the start; 0: no loss scaling; negative: derived
  int64_t device_memory = 0;  // bytes; 0: no bound
  Recompute recompute = Recompute::kNone;
  bool deterministic = false;
  bool cuda_graph = false;
  comm::Transport transport = comm::Transport::kAuto;
  int numa_ranks = 0;  // 0: by the GPUs' places, 1: one node
  double timeout_s = 600;
  double start_timeout_s = 600;  // of waits before the first step is done
  int64_t expect_bandwidth = 0;  // bytes per second; 0: derived, see check_bandwidth()
  int64_t check_replicas = 0;    // steps; 0: never
  int64_t seed = 1234;

  // data parallelism
  int zero = 0;
  DType grad_dtype = DType::kF32;
  bool no_overlap = false;
  bool reproducible = false;
  int shard_ranks = 0;    // 0: all
  int reshard_ranks = 0;  // 0: none

  // slow links
  int64_t freeze_step = 0;  // steps; 0: derived, or the optimizer has none
  int64_t outer_every = 0;  // steps; 0: no local steps, and the next four say nothing
  int64_t outer_start = 0;  // steps before the first local one
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  bool outer_streaming = false;
  CodedBits quantize_gathers = CodedBits::kNone;
  CodedBits quantize_reductions = CodedBits::kNone;

  // pipelines
  int pipeline = 1;                                     // ranks
  std::optional<comm::ScheduleKind> pipeline_schedule;  // empty: by pipeline_chunks
  int pipeline_chunks = 0;                              // per rank; 0: the minimum of the schedule

  // context parallelism
  int context = 1;  // ranks that share each sequence
  comm::ContextKind context_kind = comm::ContextKind::kGather;

  int expert = 1;  // ranks that have different experts of mixtures

  // tensor parallelism
  int tensor = 1;  // ranks that share each layer
  // Mesh ranks of `tensor` and `context` that a process has; 0: one, or as many as it takes where
  // processes are too few for all of them.
  int ranks_per_process = 0;
  int tensor_pieces = 0;  // of rows that travel, of a plan of another program; 0: one for each part

  // offload to host memory, or to a disk
  std::string offload_to = "none";  // as --offload says it; resolve() sets the next two
  OffloadKind offload = OffloadKind::kNone;
  std::string offload_folder;  // on a disk; empty: in memory
  double offload_ratio = 1;    // of the parameters that `offload` is for
  bool offload_activations = false;

  // output
  std::string out = "out";
  int64_t eval_every = 0;
  int64_t report_every = 100;  // steps; 0: never
  bool tensorboard = false;
  int64_t tensorboard_histograms = 0;  // steps; 0: none
  std::string prometheus;              // see PrometheusServer; or "NAME.prom"; empty: none
  std::string trace;                   // a file; empty: none
  std::string trace_steps;             // "3-5"; empty: the third to the fifth of this start
  std::string memory_profile;          // a file; empty: none
  bool quiet = false;

  // checkpoints
  int64_t save_every = 0;   // steps; 0: only at the end
  double save_minutes = 0;  // 0: off
  bool no_save = false;
  int64_t keep = 2;             // newest ones; 0: all
  std::string resume = "none";  // or "auto", or a folder
};

// How --help speaks of what is trained.
struct RunWords {
  std::string sample = "sample";      // "sequence"
  std::string default_lr = "needed";  // where --lr comes from if it is not given
};

// Declares the flags of all these.
void describe(ConfigSpec& spec, RunConfig& config, const RunWords& words);

// Fills in what is derived from other options and the number of ranks; lr is not negative any more.
// Throws ConfigError for combinations that cannot be.
void resolve(RunConfig& config, int ranks);

// The device of --device, of this rank. Throws UnavailableError, on all ranks, when a build or
// machine lacks it. Collective.
Device device_of(const RunConfig& config, comm::World& world);
// The data type of parameters and activations. Throws ConfigError where the device cannot compute
// in `precision`.
DType dtype_of_flag(Precision precision, const Device& device);
// The choices of --dtype that `allowed` names, for ConfigSpec::add_choice().
std::vector<std::pair<std::string, Precision>> precision_choices(
    std::initializer_list<Precision> allowed);

}  // namespace shale::models
