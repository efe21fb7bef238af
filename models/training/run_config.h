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

// Optimizers that --optimizer selects.
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

// Values of --dtype: the dtype of parameters and activations, and of the operands of GEMMs.
enum class Precision { kAuto, kF32, kTf32, kBF16, kF16, kFp8 };
std::string_view precision_name(Precision precision);  // name in --dtype, such as "bf16"

// Values that share one scale with --dtype fp8: all values of a block, or of a tensor.
enum class Fp8Scaling { kBlock, kTensor };

// Values of --offload: optimizer states in host memory, stepped by the CPU, or parameters too.
enum class OffloadKind { kNone, kOptimizer, kParameters };

// Bits per value of quantized collectives.
enum class CodedBits { kNone, k8, k4 };

// Options of every training run. Programs add options for models and data (models/language).
struct RunConfig {
  // Steps and batches.
  int64_t steps = 1000;
  double epochs = 0;         // 0: only `steps` ends the run; see resolve_steps()
  int64_t micro_batch = 8;   // samples per rank in one forward pass
  int64_t global_batch = 0;  // samples per optimizer step; 0: micro_batch * data-parallel ranks
  std::string batch_ramp;    // text for parse_batch_ramp()

  // Optimizer. resolve() replaces negative values by defaults.
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double lr = -1;
  double usual_lr = 0;  // learning rate of the model's preset with AdamW; 0: unknown
  double min_lr = -1;
  int64_t warmup_steps = -1;
  optim::Decay schedule = optim::Decay::kCosine;
  int64_t decay_steps = -1;                 // used only if optim::is_wsd(schedule)
  // After resolve(), negative if the optimizer has no such option.
  double beta1 = -1, beta2 = -1, eps = -1;
  double weight_decay = 0.1;
  std::string param_groups;  // text for parse_parameter_groups()
  double momentum = -1;
  double clip = 1;           // maximum gradient norm; 0: no clipping
  double skip_outliers = 0;  // maximum gradient norm, in standard deviations; 0: no limit
  double ema = 0;            // decay of a moving average of the weights; 0: no average

  // Device and precision.
  std::string device = "auto";
  int threads = 0;  // CPU threads per rank; 0: its CPUs, at most the node's / ranks of the node
  Precision dtype = Precision::kAuto;
  int64_t fp8_kept_blocks = 1;
  Fp8Scaling fp8_scaling = Fp8Scaling::kBlock;
  int workers = 1;            // number of threads that prepare batches
  double loss_scale = -1;  // initial loss scale; 0: no loss scaling; negative: depends on the dtype
  int64_t device_memory = 0;  // maximum bytes of device memory; 0: no limit
  Recompute recompute = Recompute::kNone;
  bool deterministic = false;
  bool cuda_graph = false;
  comm::Transport transport = comm::Transport::kAuto;
  int numa_ranks = 0;  // ranks per NUMA node; 0: by location of the GPUs, 1: off
  double timeout_s = 600;
  int64_t check_replicas = 0;  // steps between comparisons of replicas; 0: none
  int64_t seed = 1234;

  // Data parallelism.
  int zero = 0;
  DType grad_dtype = DType::kF32;
  bool no_overlap = false;
  bool reproducible = false;
  int shard_ranks = 0;    // ranks per sharding group; 0: all
  int reshard_ranks = 0;  // ranks that shard parameters between forward and backward; 0: off

  // Reduction of traffic on slow links.
  int64_t freeze_step = 0;  // steps before 1-bit Adam compresses; 0: default, or another optimizer
  // Local steps per outer step; 0: none, the other outer_ options are unused.
  int64_t outer_every = 0;
  int64_t outer_start = 0;  // steps before the first local step
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  bool outer_streaming = false;
  CodedBits quantize_gathers = CodedBits::kNone;
  CodedBits quantize_reductions = CodedBits::kNone;

  // Pipeline parallelism.
  int pipeline = 1;                                     // number of ranks in a pipeline
  std::optional<comm::ScheduleKind> pipeline_schedule;  // empty: chosen by pipeline_chunks
  int pipeline_chunks = 0;  // stages per rank; 0: minimum of the schedule

  // Context parallelism.
  int context = 1;  // number of ranks that share each sequence
  comm::ContextKind context_kind = comm::ContextKind::kGather;

  int expert = 1;  // number of ranks that share the experts of MoE layers

  // Tensor parallelism.
  int tensor = 1;  // number of ranks that share each layer
  // Number of --tensor and --context ranks that a process hosts. 0: one, or more if there are fewer
  // processes than ranks.
  int ranks_per_process = 0;
  int tensor_pieces = 0;  // chunks per transfer, set by shale plan; 0: one per tensor rank

  // Offload to host memory or to a disk. resolve() derives `offload` and `offload_folder` from
  // `offload_to`, the value of --offload.
  std::string offload_to = "none";
  OffloadKind offload = OffloadKind::kNone;
  std::string offload_folder;  // folder on a disk; empty: host memory
  double offload_ratio = 1;    // fraction of the parameters to which `offload` applies
  bool offload_activations = false;

  // Output.
  std::string out = "out";
  int64_t eval_every = 0;
  int64_t patience = 0;  // number of validations without a lower loss that end the run; 0: off
  int64_t report_every = 100;  // steps between reports of all ranks; 0: no reports
  bool tensorboard = false;
  std::string prometheus;      // "NAME.prom", or an address for PrometheusServer; empty: none
  std::string trace;           // file of the timeline, or of the memory profile; empty: none
  std::string trace_steps;     // range such as "3-5"; empty: third to fifth step after this start
  bool quiet = false;

  // Checkpoints.
  int64_t save_every = 0;   // steps between checkpoints; 0: only one, at the end
  double save_minutes = 0;  // minutes between checkpoints; 0: no limit; -1: chosen by SaveSchedule
  bool no_save = false;
  int64_t keep = 2;             // number of newest checkpoints to keep; 0: all
  int64_t keep_every = 0;       // also keep checkpoints at multiples of this many steps; 0: none
  bool keep_best = false;       // also keep the checkpoint with the lowest validation loss
  std::string after_save;       // shell command after each save; empty: none
  std::string before_resume;    // shell command before a resume; empty: none
  std::string resume = "none";  // "none", "auto" or a folder
  // Run or checkpoint whose optimizer states the run starts with; empty: none.
  std::string optimizer_from;

  // Steps and samples that a run skips. skip_non_finite: maximum non-finite steps in a row; 0: the
  // first one ends the run.
  int64_t skip_non_finite = 0;
  std::string skip_samples;     // text for parse_sample_range()

  // Returns true if `trace` ends like the file of a memory profile (report/memory_profile.h).
  bool profiles_memory() const { return trace.ends_with(".svg") || trace.ends_with(".pickle"); }
};

// Words for the --help of a training program.
struct RunWords {
  std::string sample = "sample";      // singular noun for a sample, such as "sequence"
  std::string default_lr = "needed";  // description of the default of --lr
};

// Declares the flags of all options of `config`.
void describe(ConfigSpec& spec, RunConfig& config, const RunWords& words);

// Fills in options that are derived from other options and the number of ranks. Afterwards, lr is
// not negative. With --epochs, options that depend on the number of steps are left to
// resolve_steps(). Throws ConfigError for incompatible options.
void resolve(RunConfig& config, int ranks);

// With --epochs, sets `steps`: the run ends after the step in which it has used its data `epochs`
// times, or after --steps if that was set and is less. Then fills in the options that depend on the
// number of steps. `config` must be resolved. samples_per_epoch: samples of the data; 0: the data
// has no length, so --epochs is a ConfigError.
void resolve_steps(RunConfig& config, const ConfigSpec& spec, int64_t samples_per_epoch, int ranks);

// Returns this rank's device for --device. Throws UnavailableError, on all ranks, if the build or a
// machine does not support it. Collective.
Device device_of(const RunConfig& config, comm::World& world);
// Returns the dtype of parameters and activations. Throws ConfigError if the device cannot compute
// in `precision`. With fp8, checks only bf16, because check_fp8() checks fp8.
DType dtype_of_flag(Precision precision, const Device& device);
// Returns those choices of --dtype that are in `allowed`, for ConfigSpec::add_choice().
std::vector<std::pair<std::string, Precision>> precision_choices(
    std::initializer_list<Precision> allowed);

}  // namespace shale::models
