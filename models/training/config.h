#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/comm/process_group.h"
#include "shale/models/hf_folder.h"
#include "shale/models/language_model.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/runtime/optim/schedule.h"

namespace shale::comm {
class World;
}

namespace shale::models {

enum class OptimizerKind { kAdamW, kAdamWBF16, kAdamW8bit, kLion, kAdafactor, kSgd };

// What lies in host memory: the optimizer's states and its step, and in stage 3 parameters.
enum class OffloadKind { kNone, kOptimizer, kParameters };

// The options of train_lm; defaults make `train_lm --data PATH` useful by itself.
struct TrainConfig {
  // data
  std::string data;
  DataFormat data_format = DataFormat::kAuto;
  double val_fraction = 0.1;

  // model; 0 means "as the preset has it"
  std::string model = "nano";
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t vocab = 0;
  std::string init;  // a Hugging Face folder
  double dropout = 0;
  int64_t loss_chunk = 0;  // tokens

  // batch
  int64_t steps = 1000;
  int64_t seq_len = 256;
  int64_t micro_batch = 8;   // sequences per rank and forward
  int64_t global_batch = 0;  // sequences per step; 0: micro_batch * ranks

  // optimizer; negative: derived, see describe()
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double lr = -1;
  double min_lr = -1;
  int64_t warmup_steps = -1;
  optim::Decay schedule = optim::Decay::kCosine;
  double weight_decay = 0.1;
  double momentum = 0.9;
  double clip = 1;  // 0: off

  // device
  std::string device = "auto";
  int threads = 0;  // 0: the rank's share of the node
  std::string dtype = "auto";
  double loss_scale = -1;             // at the start; 0: no loss scaling; negative: derived
  int64_t loss_scale_window = 2000;   // steps
  int64_t loss_scale_hysteresis = 1;  // overflows
  int64_t device_memory = 0;          // bytes; 0: no bound
  Recompute recompute = Recompute::kNone;
  bool deterministic = false;
  bool cuda_graph = false;
  bool dependent_launch = false;
  comm::Transport transport = comm::Transport::kAuto;
  double timeout_s = 600;
  int64_t expect_bandwidth = 0;  // bytes per second; 0: derived, see check_bandwidth()
  int64_t check_replicas = 0;    // steps; 0: never
  int64_t seed = 1234;

  // data parallelism
  int zero = 0;
  DType grad_dtype = DType::kF32;
  bool no_overlap = false;
  bool reproducible = false;
  int prefetch = 1;  // units
  comm::ReshardAfterForward reshard = comm::ReshardAfterForward::kAuto;
  int64_t persist_below = 0;  // elements
  int shard_ranks = 0;        // 0: all
  int reshard_ranks = 0;      // 0: none

  // offload to host memory
  OffloadKind offload = OffloadKind::kNone;
  double offload_ratio = 1;  // of the parameters that `offload` is for
  bool offload_activations = false;

  // output
  std::string out = "out";
  int64_t eval_every = 0;
  int64_t eval_samples = 256;
  int64_t sample_tokens = 0;
  std::string sample_prompt;
  double temperature = 0.8;
  int64_t top_k = 50;
  std::string export_dir;
  int64_t export_shard_bytes = 5'000'000'000;
  bool measure_peak = false;
  bool quiet = false;

  // checkpoints
  int64_t save_every = 0;   // steps; 0: only at the end
  double save_minutes = 0;  // 0: off
  bool no_save = false;
  int64_t keep = 2;             // newest ones; 0: all
  std::string resume = "none";  // or "auto", or a folder
};

// Declares the flags of train_lm.
void describe(ConfigSpec& spec, TrainConfig& config);

// Fills in what is derived from other options and the number of ranks. Throws ConfigError for
// combinations that cannot be.
void resolve(TrainConfig& config, int ranks);

// The model that the options ask for: the preset, or `stored` when --init names a folder, then the
// sizes given by flags. The preset nano has a byte vocabulary when the data is text, else GPT-2's.
// Throws ConfigError for sizes that differ from the stored ones, and for a sequence beyond the
// context.
LanguageModelConfig model_config(const TrainConfig& config, bool is_text,
                                 const HfFolder* stored = nullptr);

// The device of --device. Throws UnavailableError when this build or machine lacks it.
// Of this rank. Collective.
Device device_of(const TrainConfig& config, comm::World& world);
DType dtype_of_flag(const TrainConfig& config, const Device& device);

}  // namespace shale::models
