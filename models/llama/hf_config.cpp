#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/models/llama/hf.h"
#include "shale/models/llama/variant.h"
#include "shale/models/weights/hf_export.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

// Limit of sizes, far above any model, so that products of two sizes do not overflow.
constexpr int64_t kMaxSize = int64_t{1} << 30;
constexpr int64_t kMaxLayers = 10'000;

constexpr const char* kActiveExperts = "num_experts_per_tok";
constexpr const char* kRenormalise = "norm_topk_prob";
// Name that transformers 5 uses instead of num_experts.
constexpr const char* kOtherExperts = "num_local_experts";
constexpr const char* kScaling = "rope_scaling";
// In transformers 5, the object with the keys of RoPE.
constexpr const char* kParameters = "rope_parameters";
constexpr const char* kOriginal = "original_max_position_embeddings";

int64_t size_of(const JsonObject& json, std::string_view key, std::optional<int64_t> absent = {},
                int64_t max = kMaxSize, int64_t min = 1) {
  const int64_t value = json.integer(key, absent);
  if (value < min || value > max) json.fail(key, cat(min, " to ", max));
  return value;
}

double real_of(const JsonObject& json, std::string_view key, std::optional<double> absent,
               double min, double max) {
  const double value = json.real(key, absent);
  if (!(value >= min && value <= max)) {
    json.fail(key, cat(format_real(min), " to ", format_real(max)));
  }
  return value;
}

const LlamaVariant& variant_of(const JsonObject& json) {
  const std::string type = json.text("model_type");
  std::string known;
  for (const LlamaVariant& variant : kLlamaVariants) {
    if (variant.family == type) return variant;
    known += cat(known.empty() ? "\"" : ", \"", variant.family, "\"");
  }
  json.fail("model_type", cat("one of ", known));
}

void read_heads(const JsonObject& json, const LlamaVariant& variant, LanguageModelConfig& config) {
  constexpr const char* kKvHeads = "num_key_value_heads";
  const bool as_many = variant.kv_heads == 0 || json.is_null(kKvHeads);
  config.heads = size_of(json, "num_attention_heads");
  config.kv_heads = size_of(json, kKvHeads, as_many ? config.heads : variant.kv_heads);
  if (config.heads % config.kv_heads != 0) {
    json.fail(kKvHeads, cat("a divisor of num_attention_heads, which is ", config.heads));
  }
  const bool is_said = json.has("head_dim") || variant.head_size > 0;
  if (!is_said && config.width % config.heads != 0) {
    json.fail("hidden_size", cat("a multiple of num_attention_heads, which is ", config.heads));
  }
  config.head_size =
      size_of(json, "head_dim",
              variant.head_size > 0 ? variant.head_size : config.width / config.heads, kMaxSize);
  if (config.head_size % 2 != 0 || config.head_size > kMaxSize / config.heads) {
    json.fail(json.has("head_dim") ? "head_dim" : "hidden_size",
              cat("an even number of elements per head, at most ", kMaxSize, " in all heads"));
  }
}

// Requires that all layers have MoE blocks.
void require_all_layers(const JsonObject& json) {
  if (size_of(json, "decoder_sparse_step", 1) != 1) {
    json.fail("decoder_sparse_step", "1: MoE in every layer");
  }
  if (json.has("mlp_only_layers") && !json.integers("mlp_only_layers").empty()) {
    json.fail("mlp_only_layers", "none: MoE in every layer");
  }
}

void read_experts(const JsonObject& json, const ExpertsVariant& mixture,
                  LanguageModelConfig& config) {
  require_all_layers(json);
  const std::string key(mixture.experts_key);
  const bool other_name = !json.has(key) && json.has(kOtherExperts);
  config.experts =
      size_of(json, other_name ? kOtherExperts : key.c_str(), mixture.experts, kMaxExperts);
  config.active_experts = size_of(json, kActiveExperts, mixture.active, kMaxExperts);
  if (config.active_experts > config.experts) {
    json.fail(kActiveExperts, cat("at most ", key, ", which is ", config.experts));
  }
  config.hidden = size_of(json, mixture.hidden_key, mixture.hidden);
  config.renormalise = mixture.always_renormalises || json.flag(kRenormalise, false);
  if (json.real("router_jitter_noise", 0) != 0) json.fail("router_jitter_noise", "0");
}

constexpr const char* kFullLayer = "full_attention";
constexpr const char* kWindowedLayer = "sliding_attention";

// Returns the number of layers before the first layer with a window.
int64_t full_layers_of(const JsonObject& json, int64_t layers) {
  const std::vector<std::string> types = json.texts("layer_types");
  if (types.empty()) return std::min(size_of(json, "max_window_layers", 28, kMaxLayers, 0), layers);
  const auto windowed = std::find(types.begin(), types.end(), kWindowedLayer);
  const bool others = std::count(types.begin(), windowed, kFullLayer) +
                          std::count(windowed, types.end(), kWindowedLayer) !=
                      std::ssize(types);
  if (others || std::ssize(types) != layers) {
    json.fail("layer_types", cat("one type for each of ", layers, " layers: first ", kFullLayer,
                                 ", then ", kWindowedLayer));
  }
  return windowed - types.begin();
}

// Reads the window; ignores one that is at least as long as the context.
void read_window(const JsonObject& json, const LlamaVariant& variant, LanguageModelConfig& config) {
  if (variant.window == 0 || json.is_null("sliding_window")) return;
  if (variant.window_flag && !json.flag("use_sliding_window", false)) return;
  const int64_t window = size_of(json, "sliding_window", variant.window);
  const int64_t full = variant.full_layers ? full_layers_of(json, config.layers) : 0;
  if (window >= config.context || full == config.layers) return;
  config.window = window;
  config.full_layers = full;
}

// Throws DataError for variants whose weights would load, but which compute something else.
void reject_variants(const JsonObject& json) {
  const std::string activation = json.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") json.fail("hidden_act", "\"silu\"");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "clip_qkv"}) {
    if (json.has(key)) json.fail(key, "null: not supported for this family");
  }
  if (json.has("quantization_config")) {
    json.fail("quantization_config", "none: weights of F32, BF16 or F16");
  }
  if (json.real("partial_rotary_factor", 1) != 1) json.fail("partial_rotary_factor", "1");
  if (!json.flag("is_causal", true)) json.fail("is_causal", "true: tokens see earlier ones only");
}

// Returns YaRN's factor of cos and sin. Also reads the keys that DeepSeek's configurations have for
// it.
double attention_factor_of(const JsonObject& json, double factor) {
  if (json.has("attention_factor")) return real_of(json, "attention_factor", {}, 1e-6, 1e6);
  const double up = json.real("mscale", 0), down = json.real("mscale_all_dim", 0);
  if (up == 0 || down == 0 || factor <= 1) return 0;
  const double scale = (0.1 * up * std::log(factor) + 1) / (0.1 * down * std::log(factor) + 1);
  if (!(scale >= 1e-6 && scale <= 1e6)) json.fail("mscale", "a resulting factor of 1e-6 to 1e6");
  return scale;
}

void read_scaling(const JsonObject& json, const JsonObject& scaling, int64_t context,
                  RopeConfig& rope) {
  const std::string kind = scaling.text("rope_type", scaling.text("type", "default"));
  if (scaling.has("full_attention") || scaling.has("sliding_attention")) {
    json.fail(json.has(kScaling) ? kScaling : kParameters, "the same for all layers");
  }
  if (scaling.real("partial_rotary_factor", 1) != 1) scaling.fail("partial_rotary_factor", "1");
  if (kind == "default") return;
  rope.factor = real_of(scaling, "factor", {}, 1, 1e6);
  if (kind == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return;
  }
  // A key at the top level takes precedence over one in the scaling object, as in transformers.
  rope.original_context = size_of(json.has(kOriginal) ? json : scaling, kOriginal, context);
  if (kind == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = real_of(scaling, "low_freq_factor", {}, 1e-6, 1e6);
    rope.high_freq_factor = real_of(scaling, "high_freq_factor", {}, 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      scaling.fail("high_freq_factor", "more than low_freq_factor");
    }
  } else if (kind == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = real_of(scaling, "beta_fast", 32, 1e-6, 1e6);
    rope.beta_slow = real_of(scaling, "beta_slow", 1, 1e-6, 1e6);
    if (rope.beta_fast < rope.beta_slow) scaling.fail("beta_fast", "at least beta_slow");
    rope.attention_factor = attention_factor_of(scaling, rope.factor);
    rope.truncate = scaling.flag("truncate", true);
  } else {
    scaling.fail(scaling.has("rope_type") ? "rope_type" : "type",
                 "\"default\", \"linear\", \"llama3\" or \"yarn\"");
  }
}

RopeConfig rope_of(const JsonObject& json, int64_t context, double theta) {
  if (json.has(kScaling) && json.has(kParameters)) {
    json.fail(kParameters, cat("no such key beside ", kScaling));
  }
  const auto scaling = json.object(json.has(kScaling) ? kScaling : kParameters);
  const bool is_inside = scaling && scaling->has("rope_theta");
  RopeConfig rope;
  // The base must exceed 1: YaRN divides by its logarithm.
  rope.theta = real_of(is_inside ? *scaling : json, "rope_theta", theta, 1.001, 1e18);
  if (scaling) read_scaling(json, *scaling, context, rope);
  return rope;
}

LanguageModelConfig config_of(const JsonObject& json) {
  const LlamaVariant& variant = variant_of(json);
  LanguageModelConfig config;
  config.family = variant.family;
  config.layers = size_of(json, "num_hidden_layers", {}, kMaxLayers);
  config.width = size_of(json, "hidden_size");
  if (!variant.has_experts()) config.hidden = size_of(json, "intermediate_size", variant.hidden);
  config.vocab = size_of(json, "vocab_size");
  config.padded_vocab = pad_vocab(config.vocab);
  config.context = size_of(json, "max_position_embeddings", variant.context);
  // The epsilon is used as a float; numbers below 1e-30 lose precision in this type.
  config.norm_eps = static_cast<float>(real_of(json, "rms_norm_eps", variant.norm_eps, 1e-30, 1));
  config.tied = json.flag("tie_word_embeddings", false);
  read_heads(json, variant, config);
  config.attention_bias =
      variant.attention_bias == AttentionBias::kQkv ||
      (variant.attention_bias == AttentionBias::kAll && json.flag("attention_bias", false));
  config.mlp_bias = variant.may_have_mlp_bias && json.flag("mlp_bias", false);
  if (variant.has_experts()) read_experts(json, variant.mixture, config);
  reject_variants(json);
  read_window(json, variant, config);
  config.rope = rope_of(json, config.context, variant.theta);
  return config;
}

Json scaling_json(const RopeConfig& rope) {
  if (rope.scaling == RopeScaling::kNone) return nullptr;
  if (rope.scaling == RopeScaling::kLinear)
    // Form that OLMo2 had before transformers 5.
    return {{"type", "linear"}, {"factor", rope.factor}};
  const bool is_yarn = rope.scaling == RopeScaling::kYarn;
  Json json = {{"rope_type", is_yarn ? "yarn" : "llama3"},
               {"factor", rope.factor},
               {kOriginal, rope.original_context}};
  if (!is_yarn) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    return json;
  }
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  if (rope.attention_factor != 0) json["attention_factor"] = rope.attention_factor;
  if (!rope.truncate) json["truncate"] = false;
  return json;
}

}  // namespace

LanguageModelConfig load_llama_config(const std::string& folder) {
  return config_of(JsonObject::load((std::filesystem::path(folder) / kHfConfigFile).string()));
}

LanguageModelConfig parse_llama_config(std::string_view text, const std::string& source) {
  return config_of({text, source});
}

std::string llama_config_json(const LanguageModelConfig& config, DType dtype) {
  const LlamaVariant& variant = llama_variant(config.family);
  Json json = {
      {"architectures", Json::array({variant.architecture})},
      {"model_type", variant.family},
      {"vocab_size", config.vocab},
      {"hidden_size", config.width},
      {"intermediate_size", config.hidden},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", kv_heads_of(config)},
      {"head_dim", head_size_of(config)},
      {"hidden_act", "silu"},
      {"max_position_embeddings", config.context},
      {"rms_norm_eps", parse_real(format_real(config.norm_eps)).value()},
      {"rope_theta", config.rope.theta},
      {kScaling, scaling_json(config.rope)},
      {"attention_dropout", 0.0},
      {"initializer_range", 0.02},
      {"tie_word_embeddings", config.tied},
      {"use_cache", true},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"pad_token_id", nullptr},
      {"torch_dtype", torch_dtype(dtype)},
  };
  if (variant.attention_bias == AttentionBias::kAll) json["attention_bias"] = config.attention_bias;
  if (variant.may_have_mlp_bias) json["mlp_bias"] = config.mlp_bias;
  if (variant.has_experts()) {
    json[std::string(variant.mixture.experts_key)] = config.experts;
    json[std::string(variant.mixture.hidden_key)] = config.hidden;
    json[kActiveExperts] = config.active_experts;
    if (!variant.mixture.always_renormalises) json[kRenormalise] = config.renormalise;
  }
  if (variant.window > 0) json["sliding_window"] = nullptr;
  if (variant.window_flag) json["use_sliding_window"] = config.window > 0;
  if (config.window > 0) {
    json["sliding_window"] = config.window;
    if (config.full_layers > 0 && !variant.full_layers) {
      throw ConfigError(cat("model: the first ", config.full_layers,
                            " layers have no window, but Hugging Face files of ", config.family,
                            " store one window for all layers"));
    }
    if (variant.full_layers) {
      json["max_window_layers"] = config.full_layers;
      for (int64_t i = 0; i < config.layers; ++i) {
        json["layer_types"].push_back(i < config.full_layers ? kFullLayer : kWindowedLayer);
      }
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace shale::models
