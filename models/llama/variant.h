#pragma once

#include <cstdint>
#include <string_view>

#include "shale/models/language/model.h"

namespace shale::models {

// Where RMS norms of queries and keys are, before RoPE.
enum class HeadNorm : uint8_t {
  kNone,
  kPerHead,   // of each head, weight [D]
  kWholeRow,  // of all heads as one row, weight [H D]
};

// Whether linear layers of attention have biases.
enum class AttentionBias : uint8_t {
  kNever,
  kAll,  // those of q, k, v and the output, if the model says so
  kQkv,  // those of q, k and v, always
};

// What tells a relative of Llama from the others.
struct LlamaVariant {
  std::string_view family;        // also "model_type" of config.json
  std::string_view architecture;  // of config.json
  AttentionBias attention_bias = AttentionBias::kAll;
  bool may_have_mlp_bias = false;
  HeadNorm head_norm = HeadNorm::kNone;
  bool norms_after = false;  // of each branch's output, not of its input

  // What a key that config.json lacks stands for.
  int64_t hidden = 11008;
  int64_t kv_heads = 0;   // 0: as many as heads
  int64_t head_size = 0;  // 0: width / heads
  int64_t context = 2048;
  double norm_eps = 1e-6;
  int64_t window = 0;        // 0: none
  bool window_flag = false;  // a window counts only with "use_sliding_window"
};

// Sources: transformers 5.23, models/*/configuration_*.py and modeling_*.py.
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
     .window_flag = true},
    {.family = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .head_norm = HeadNorm::kPerHead,
     .hidden = 22016,
     .kv_heads = 32,
     .head_size = 128,
     .context = 32768,
     .window = 4096,
     .window_flag = true},
    {.family = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .head_norm = HeadNorm::kWholeRow,
     .norms_after = true,
     .norm_eps = 1e-5},
};

// Throws ConfigError for a family that is none of these.
const LlamaVariant& llama_variant(std::string_view family);

// What a configuration leaves open.
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
