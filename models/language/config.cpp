#include "shale/models/language/config.h"

#include <tuple>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/models/language/compatibility.h"

namespace shale::models {
namespace {

// Limits far above any real model, so that products of sizes do not overflow.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxWidth = 1 << 24;
constexpr int64_t kMaxVocab = 1 << 30;
constexpr int64_t kMaxExperts = 1 << 16;

void describe_model(ConfigSpec& spec, LanguageConfig& c) {
  spec.section("Model");
  spec.add_choice("model", c.model, preset_names(), "model preset")
      .may_change()
      .basic("model preset, such as gpt2-124m or llama3.2-1b");
  const auto size = [&](const char* name, int64_t& field, int64_t max, const char* help) {
    spec.add(name, field, help, {.min = 1, .max = max, .help = {.default_text = "the preset's"}})
        .may_change();
  };
  size("layers", c.layers, kMaxLayers, "number of transformer blocks");
  size("width", c.width, kMaxWidth, "hidden size: channels of the residual stream");
  size("heads", c.heads, kMaxWidth, "number of attention heads");
  size("kv-heads", c.kv_heads, kMaxWidth, "number of key-value heads (GQA), for Llama-like models");
  size("hidden", c.hidden, kMaxWidth, "hidden size of feed-forward blocks, for Llama-like models");
  size("experts", c.experts, kMaxExperts, "number of experts per MoE layer");
  size("active-experts", c.active_experts, kMaxExperts, "number of experts per token (top-k)");
  size("window", c.window, kMaxWidth, "attention window in tokens, for Llama-like models");
  spec.add("attention-pattern", c.attention_pattern,
           "block-sparse attention: local, fixed, strided, longformer or bigbird, or a JSON file "
           "that sets the sizes of a pattern or lists the key blocks of each query block",
           {.help = {.metavar = "PATTERN", .default_text = "none"}})
      .may_change();
  size("vocab", c.vocab, kMaxVocab,
       "vocabulary size; the embedding is padded to a multiple of 128");
  spec.add("seq-len", c.seq_len, "tokens per sequence", {.min = 1, .max = 1 << 20})
      .basic("tokens per sequence");
  spec.add("init", c.init,
           "start from a local model: a Hugging Face folder, a checkpoint, a run, or a file of "
           "nanoGPT or llm.c",
           {.is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("start from a Hugging Face folder or a run");
  spec.add("keep-optimizer", c.keep_optimizer,
           "also load the optimizer states of --init, which must be a run or checkpoint; steps, "
           "schedule and data start from the beginning")
      .may_change();
  spec.add("dropout", c.dropout,
           "dropout probability after the embedding and on each residual branch",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("loss-chunk", c.loss_chunk,
           "compute the logits of this many tokens at a time: less memory, one more GEMM; 0: all "
           "tokens",
           {.min = 0})
      .may_change();
  spec.add("balance-loss", c.balance_loss, "weight of the load-balancing loss of MoE layers",
           {.min = 0, .max = 1e3});
  spec.add("router-z-loss", c.router_z_loss, "weight of the z-loss of MoE routers",
           {.min = 0, .max = 1e3});
  spec.add("router-bias-rate", c.router_bias_rate,
           "step size of MoE router biases, which balance experts without a loss; 0: no biases",
           {.min = 0, .max = 1});
  spec.add("capacity-factor", c.capacity_factor,
           "maximum tokens per expert, as a multiple of an equal share; excess tokens are dropped; "
           "0: no limit",
           {.min = 0, .max = 1e6});
}

void describe_output(ConfigSpec& spec, LanguageConfig& c) {
  spec.section("Evaluation, samples and export");
  spec.add("eval-samples", c.eval_samples, "sequences per validation; 0: all", {.min = 0})
      .may_change();
  spec.add("sample-tokens", c.sample_tokens, "number of tokens to generate at the end", {.min = 0})
      .may_change()
      .basic("tokens to generate at the end");
  spec.add("sample-prompt", c.sample_prompt,
           "prompt of the generated tokens; without a tokenizer, each byte is a token",
           {.help = {.metavar = "TEXT"}})
      .may_change();
  spec.add("export", c.export_dir, "write a Hugging Face folder at the end",
           {.is_path = true, .help = {.metavar = "DIR"}})
      .may_change()
      .basic("write a Hugging Face folder at the end");
  spec.add_size(
          "export-shard-size", c.export_shard_bytes,
          "maximum size of a file of --export; larger models become several files with an index",
          {.min = 1})
      .may_change();
  spec.needs("keep-optimizer", "--init");
  spec.needs("eval-samples", "--eval-every");
  spec.needs("sample-prompt", "--sample-tokens");
  spec.needs("export-shard-size", "--export");
}

void check_adapters(const TrainConfig& config) {
  const LanguageConfig& language = config.language;
  if (!language.lora.is_on() || !language.init.empty() || language.is_dry_run) return;
  throw ConfigError("--lora-rank needs --init: adapters are trained on top of a stored model");
}

// With --init, --model may only name the preset that equals the stored model, apart from sizes set
// by flags. The default --model is always allowed.
void check_is_preset(const LanguageConfig& config, const LanguageModelConfig& preset,
                     const LanguageModelConfig& stored) {
  if (config.model == LanguageConfig{}.model) return;
  const auto sizes = [&](const LanguageModelConfig& m) {
    const auto size = [](int64_t given, int64_t own) { return given > 0 ? given : own; };
    return cat(m.family, " of ", size(config.layers, m.layers), " layers, width ",
               size(config.width, m.width), ", ", size(config.heads, m.heads), " heads");
  };
  if (sizes(preset) == sizes(stored)) return;
  throw ConfigError(cat("--model ", config.model, " is ", sizes(preset), ", the model in ",
                        config.init, " is ", sizes(stored), "; leave out --model"));
}

// Builds the pattern from --attention-pattern and its size flags.
void resolve_pattern(TrainConfig& config) {
  LanguageConfig& language = config.language;
  if (language.attention_pattern.empty()) return;
  language.pattern = attention_pattern(language.attention_pattern, config.run.seed);
  const DataConfig& source = language.source;
  check_covers(language.pattern, language.seq_len,
               source.document_mask || source.packing == PackingChoice::kBestFit ||
                   source.objective != Objective::kPretrain);
  const RunConfig& run = config.run;
  const comm::SequenceParts parts{.shards = run.context, .slices = run.tensor};
  const bool is_padded = language.seq_len % parts.slices != 0;
  const int64_t chunk = parts.chunk_tokens(language.seq_len);
  constexpr int64_t kUnit = kernels::kAttentionBlock;
  if ((parts.shards > 1 || is_padded) && chunk % kUnit != 0) {
    throw ConfigError(cat("--attention-pattern with ", is_padded ? "--tensor" : "--context",
                          ": --seq-len is ", language.seq_len, ", expected a multiple of ",
                          parts.chunks() * kUnit));
  }
}

}  // namespace

void describe(ConfigSpec& spec, TrainConfig& config, bool needs_data) {
  describe(spec, config.language.source, needs_data);
  describe_model(spec, config.language);
  describe(spec, config.language.lora);
  describe(spec, config.run,
           {.sample = "sequence", .default_lr = "by preset; 3e-5 with --init, 2e-4 with adapters"});
  describe_output(spec, config.language);
  if (!needs_data) return;  // other programs, such as shale plan, run without --data

  spec.example("train_lm --data notes.txt --sample-tokens 200");
  spec.example(
      "train_lm --task sft --data chats.jsonl --init my_model --lora-rank 16 --export chat");
  spec.example("mpirun -np 4 --bind-to none train_lm --data my_project/ --eval-every 100");
  spec.example(
      "train_lm --model gpt2-124m --data fineweb/ --dtype bf16 --save-every 500 --resume auto");
}

void resolve(TrainConfig& config, int ranks) {
  // Fine-tuning rates: a rate for training from scratch would destroy what a model has learned.
  constexpr double kFineTuningLr = 3e-5, kAdapterLr = 2e-4, kPreferenceFactor = 1.0 / 30;
  const LanguageConfig& language = config.language;
  double& lr = config.run.lr;
  if (language.init.empty()) config.run.usual_lr = find_preset(language.model).lr;
  if (lr < 0) {
    lr = language.lora.is_on()   ? kAdapterLr
         : language.init.empty() ? find_preset(language.model).lr
                                 : kFineTuningLr;
    if (language.source.objective == Objective::kDpo) lr *= kPreferenceFactor;
  }
  check(language.source);
  check_adapters(config);
  check_compatible(incompatible_language_options(), config);
  if (!(static_cast<float>(language.dropout) < 1)) {
    throw ConfigError(cat("--dropout is ", language.dropout,
                          ", which fp32 rounds to 1; use a smaller value, such as 0.1"));
  }
  config.run.optimizer_from = language.keep_optimizer ? language.init : "";
  resolve(config.run, ranks);
  resolve_pattern(config);
}

namespace {

// Adds the pattern to the model. A stored model may get a pattern if it has none.
void take_pattern(const LanguageConfig& config, const StoredModel* stored,
                  LanguageModelConfig& model) {
  if (config.pattern.is_on()) {
    if (stored != nullptr && model.pattern.is_on() && model.pattern != config.pattern) {
      throw ConfigError(cat("--attention-pattern is ", config.attention_pattern, ", the model in ",
                            config.init, " has a different one; leave it out"));
    }
    model.pattern = config.pattern;
  }
  if (!model.pattern.is_on()) return;
  if (!config.export_dir.empty()) {
    throw ConfigError(
        cat("--export is incompatible with --attention-pattern: Hugging Face files of ",
            model.family, " cannot store it"));
  }
}

}  // namespace

LanguageModelConfig model_config(const LanguageConfig& config, int64_t data_vocab,
                                 const StoredModel* stored) {
  LanguageModelConfig model = preset(config.model, config.seq_len);
  if (find_preset(config.model).byte_vocab) {
    model.vocab = data_vocab;
    model.padded_vocab = pad_vocab(data_vocab);
  }
  if (stored != nullptr) {
    check_is_preset(config, model, stored->config());
    model = stored->config();
  }
  const auto take = [&](const char* flag, int64_t wanted, int64_t& size) {
    if (wanted == 0) return;
    if (stored != nullptr && wanted != size) {
      throw ConfigError(cat("--", flag, " is ", wanted, ", the model in ", config.init, " has ",
                            size, "; leave out --", flag));
    }
    size = wanted;
  };
  take("layers", config.layers, model.layers);
  take("width", config.width, model.width);
  take("heads", config.heads, model.heads);
  take("kv-heads", config.kv_heads, model.kv_heads);
  take("hidden", config.hidden, model.hidden);
  take("experts", config.experts, model.experts);
  take("active-experts", config.active_experts, model.active_experts);
  take("window", config.window, model.window);
  take_pattern(config, stored, model);
  take("vocab", config.vocab, model.vocab);
  if (config.vocab > 0) model.padded_vocab = pad_vocab(config.vocab);
  const LanguageConfig initial;
  for (const auto& [flag, value, unused] :
       {std::tuple("balance-loss", config.balance_loss, initial.balance_loss),
        {"router-z-loss", config.router_z_loss, initial.router_z_loss},
        {"router-bias-rate", config.router_bias_rate, initial.router_bias_rate},
        {"capacity-factor", config.capacity_factor, initial.capacity_factor}}) {
    if (value == unused || model.experts > 0) continue;
    throw ConfigError(cat("--", flag, " is ", format_real(value),
                          ", but the model has no MoE layers; leave it out"));
  }
  if (config.router_bias_rate > 0 && !config.export_dir.empty()) {
    throw ConfigError(cat("--router-bias-rate is ", config.router_bias_rate,
                          " is incompatible with --export: Hugging Face files of ", model.family,
                          " cannot store router biases; use --router-bias-rate 0"));
  }
  if (config.seq_len > model.context) {
    throw ConfigError(cat("--seq-len is ", config.seq_len,
                          ", expected at most the context length of the model, ", model.context));
  }
  if (config.dry_run_layers > 0) model.layers = config.dry_run_layers;
  return model;
}

}  // namespace shale::models
