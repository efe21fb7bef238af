#pragma once

#include <cstdint>
#include <string_view>

#include "shale/models/language/model.h"

namespace shale::models {

inline constexpr int64_t kMaxExperts = 1 << 16;  // maximum number of experts of an MoE block

// RMS norms of queries and keys, before RoPE.
enum class HeadNorm : uint8_t {
  kNone,
  kPerHead,   // one norm per head, weight [D]
  kWholeRow,  // one norm over all heads, weight [H D]
};

// Biases of attention's linear layers.
enum class AttentionBias : uint8_t {
  kNever,
  kAll,  // biases of q, k, v and the output, if config.json requests them
  kQkv,  // biases of q, k and v, always
};

// Names that files use for an MoE block, and properties of its router.
struct ExpertsVariant {
  std::string_view block = "mlp";  // block's name within a layer
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string_view experts_key = "num_experts";  // key of the number of experts in config.json
  std::string_view hidden_key = "intermediate_size";
  bool always_renormalises = false;  // renormalises the experts' weights even if no key requests it
  // Defaults of keys that are missing in config.json. experts = 0: the family has no MoE models.
  int64_t experts = 0;
  int64_t active = 0;
  int64_t hidden = 0;
};

// Properties in which Llama's relatives differ.
struct LlamaVariant {
  std::string_view family;        // name, which is also "model_type" of config.json
  std::string_view architecture;  // "architectures" of config.json
  AttentionBias attention_bias = AttentionBias::kAll;
  bool may_have_mlp_bias = false;
  HeadNorm head_norm = HeadNorm::kNone;
  bool norms_after = false;  // norms apply to the output of branches, not to their input

  // Defaults of keys that are missing in config.json.
  int64_t hidden = 11008;
  int64_t kv_heads = 0;   // 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  int64_t context = 2048;
  double norm_eps = 1e-6;
  double theta = 1e4;
  int64_t window = 0;        // sliding window in tokens; 0: none
  bool window_flag = false;  // the window applies only with "use_sliding_window"
  bool full_layers = false;  // first layers may have no window: "layer_types", "max_window_layers"
  ExpertsVariant mixture = {};

  bool has_experts() const { return mixture.experts > 0; }
};

// Source: transformers 5.23, models/*/configuration_*.py and modeling_*.py.
inline constexpr LlamaVariant kLlamaVariants[] = {
    {.family = "llama", .architecture = "LlamaForCausalLM", .may_have_mlp_bias = true},
    {.family = "mistral",
     .architecture = "MistralForCausalLM",
     .attention_bias = AttentionBias::kNever,
     .hidden = 14336,
     .kv_heads = 8,
     .context = 131072,
     .window = 4096},
    {.family = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .attention_bias = AttentionBias::kQkv,
     .hidden = 22016,
     .kv_heads = 32,
     .context = 32768,
     .window = 4096,
     .window_flag = true,
     .full_layers = true},
    {.family = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .head_norm = HeadNorm::kPerHead,
     .hidden = 22016,
     .kv_heads = 32,
     .head_size = 128,
     .context = 32768,
     .window = 4096,
     .window_flag = true,
     .full_layers = true},
    {.family = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .head_norm = HeadNorm::kWholeRow,
     .norms_after = true,
     .norm_eps = 1e-5},
    {.family = "mixtral",
     .architecture = "MixtralForCausalLM",
     .attention_bias = AttentionBias::kNever,
     .kv_heads = 8,
     .context = 131072,
     .norm_eps = 1e-5,
     .theta = 1e6,
     .window = int64_t{1} << 30,  // longer than any context: no window
     .mixture = {.block = "block_sparse_moe",
                 .gate = "w1",
                 .up = "w3",
                 .down = "w2",
                 .experts_key = "num_local_experts",
                 .always_renormalises = true,
                 .experts = 8,
                 .active = 2,
                 .hidden = 14336}},
    {.family = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .head_norm = HeadNorm::kWholeRow,
     .context = 4096,
     .norm_eps = 1e-5,
     .mixture = {.experts = 64, .active = 8, .hidden = 2048}},
    {.family = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .head_norm = HeadNorm::kPerHead,
     .kv_heads = 4,
     .context = 32768,
     .window = 4096,
     .window_flag = true,
     .mixture =
         {.hidden_key = "moe_intermediate_size", .experts = 128, .active = 8, .hidden = 768}},
};

// Returns a variant by name. Throws ConfigError for another family.
const LlamaVariant& llama_variant(std::string_view family);

// Return the values of fields of the configuration in which 0 stands for a default.
inline int64_t kv_heads_of(const LanguageModelConfig& config) {
  return config.kv_heads > 0 ? config.kv_heads : config.heads;
}
inline int64_t window_of(const LanguageModelConfig& config, int64_t layer) {
  return layer < config.full_layers ? 0 : config.window;
}
inline int64_t head_size_of(const LanguageModelConfig& config) {
  return config.head_size > 0 ? config.head_size : config.width / config.heads;
}

}  // namespace shale::models
