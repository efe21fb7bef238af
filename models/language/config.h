#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/language/data_config.h"
#include "shale/models/language/family.h"
#include "shale/models/language/lora_config.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Options of language-model training besides RunConfig. With the defaults, `train_lm --data PATH`
// trains a useful model.
struct LanguageConfig {
  DataConfig source;
  LoraConfig lora;
  int64_t seq_len = 256;

  // Model. A size of 0 means the value of the preset.
  std::string model = "nano";
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t hidden = 0;
  int64_t experts = 0;
  int64_t active_experts = 0;
  int64_t window = 0;
  std::string attention_pattern;  // name of a pattern, or file with one
  AttentionPattern pattern;       // set by resolve() from attention_pattern and sizes
  int64_t vocab = 0;
  std::string init;             // Hugging Face folder, checkpoint or run; empty: random weights
  bool keep_optimizer = false;  // also load the optimizer states of `init`
  // For dry runs: the model has only this many layers, also with `init`; 0: all layers. Weights of
  // `init` cannot be loaded into such a model.
  int64_t dry_run_layers = 0;
  bool is_dry_run = false;  // no weights are loaded, so adapters do not need `init`
  double dropout = 0;
  int64_t loss_chunk = 0;                         // tokens whose logits are computed at a time
  double balance_loss = 0.01, router_z_loss = 0;  // factors of these MoE losses in the total loss
  double router_bias_rate = 0;                    // change of router biases per step; 0: no biases
  double capacity_factor = 0;  // maximum tokens per expert / mean tokens per expert; 0: no limit

  // Output.
  int64_t eval_samples = 256;
  int64_t sample_tokens = 0;
  std::string sample_prompt;
  std::string export_dir;
  int64_t export_shard_bytes = 5'000'000'000;

  LanguageModelPolicy policy() const {
    return {.dropout = static_cast<float>(dropout),
            .loss_chunk_rows = loss_chunk,
            .balance_loss = static_cast<float>(balance_loss),
            .router_z_loss = static_cast<float>(router_z_loss),
            .capacity_factor = capacity_factor};
  }
};

// Options of train_lm.
struct TrainConfig {
  LanguageConfig language;
  RunConfig run;
};

// Declares the flags of train_lm. needs_data: --data is required; false for programs that do not
// read --data.
void describe(ConfigSpec& spec, TrainConfig& config, bool needs_data = true);

// Fills in options that follow from other options and the number of ranks. Throws ConfigError for
// incompatible options.
void resolve(TrainConfig& config, int ranks);

// Vocabulary size of GPT-2, assumed for token files that have no tokenizer.
inline constexpr int64_t kGpt2Vocab = 50257;

// Returns the architecture to train: that of the preset or, with --init, that of `stored`, with the
// sizes that flags set. A preset for bytes uses the vocabulary of the data. Throws ConfigError if a
// flag contradicts the stored model, and if a sequence is longer than the context.
LanguageModelConfig model_config(const LanguageConfig& config, int64_t data_vocab,
                                 const StoredModel* stored = nullptr);

}  // namespace shale::models
