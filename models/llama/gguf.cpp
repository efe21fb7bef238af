#include "shale/models/llama/gguf.h"

#include "shale/base/error.h"
#include "shale/models/llama/hf.h"
#include "shale/models/llama/variant.h"

namespace shale::models {
namespace {

// Converts "layers.3.self_attn.q_proj.weight" to "blk.3.attn_q.weight".
std::string gguf_name(const std::string& name) {
  struct Renamed {
    std::string_view from, to;
  };
  constexpr Renamed kParts[] = {
      {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  constexpr std::string_view kLayers = "layers.";
  if (name == "embed_tokens.weight") return "token_embd.weight";
  if (name == "norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  const size_t layer_end = name.find('.', kLayers.size()), kind = name.rfind('.');
  const std::string layer = name.substr(kLayers.size(), layer_end - kLayers.size());
  const std::string part = name.substr(layer_end + 1, kind - layer_end - 1);
  for (const Renamed& renamed : kParts) {
    if (renamed.from == part) return cat("blk.", layer, ".", renamed.to, name.substr(kind));
  }
  throw InternalError(cat("gguf: no name for ", name));
}

// Returns llama.cpp's name of the family.
std::string architecture_of(const LanguageModelConfig& config) {
  if (config.family == "mistral") return "llama";
  if (config.family == "olmo2") {
    throw ConfigError("gguf: models of the family olmo2 cannot be written as GGUF; use --to hf");
  }
  return config.family;
}

void check(const LanguageModelConfig& config) {
  if (config.experts > 0) {
    throw ConfigError(cat("gguf: models of the family ", config.family,
                          " (MoE) cannot be written as GGUF; use --to hf"));
  }
  if (config.window > 0) {
    throw ConfigError(cat("gguf: the model has a sliding window of ", config.window,
                          " tokens, which llama.cpp would ignore; use --to hf"));
  }
  if (config.family == "qwen3" && config.attention_bias) {
    throw ConfigError(
        "gguf: the model is a Qwen3 with attention_bias, which llama.cpp does not load; "
        "use --to hf");
  }
  if (config.rope.scaling == RopeScaling::kYarn) {
    throw ConfigError(
        "gguf: the model uses yarn RoPE scaling, expected none, linear or llama3; use --to hf");
  }
}

// Returns the factors by which Llama 3's RoPE scaling divides frequencies, as llama.cpp expects
// them.
std::vector<float> divisors(const RopeConfig& rope, int64_t head_size) {
  const auto plain = rope_frequencies({.theta = rope.theta}, head_size);
  const auto scaled = rope_frequencies(rope, head_size);
  std::vector<float> all;
  for (size_t i = 0; i < plain.size(); ++i) {
    all.push_back(static_cast<float>(plain[i] / scaled[i]));
  }
  return all;
}

GgufValues values_of(const LanguageModelConfig& config, const std::string& architecture) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const auto key = [&](const char* name) { return cat(architecture, ".", name); };
  const uint32_t head_size = number(head_size_of(config));
  GgufValues values = {{key("block_count"), number(config.layers)},
                       {key("context_length"), number(config.context)},
                       {key("embedding_length"), number(config.width)},
                       {key("feed_forward_length"), number(config.hidden)},
                       {key("vocab_size"), number(config.vocab)},
                       {key("attention.head_count"), number(config.heads)},
                       {key("attention.head_count_kv"), number(kv_heads_of(config))},
                       {key("attention.key_length"), head_size},
                       {key("attention.value_length"), head_size},
                       {key("attention.layer_norm_rms_epsilon"), config.norm_eps},
                       {key("rope.dimension_count"), head_size},
                       {key("rope.freq_base"), static_cast<float>(config.rope.theta)}};
  if (config.rope.scaling == RopeScaling::kLinear) {
    values.emplace_back(key("rope.scaling.type"), "linear");
    values.emplace_back(key("rope.scaling.factor"), static_cast<float>(config.rope.factor));
  }
  return values;
}

}  // namespace

GgufModel llama_gguf(const LanguageModelConfig& config) {
  check(config);
  GgufModel model{.architecture = architecture_of(config)};
  model.values = values_of(config, model.architecture);
  if (config.rope.scaling == RopeScaling::kLlama3) {
    const int64_t half = head_size_of(config) / 2;
    model.constants.emplace_back(GgufTensor{.name = "rope_freqs.weight", .shape = {half}},
                                 divisors(config.rope, head_size_of(config)));
  }
  // The architecture "llama" of llama.cpp rotates pairs of neighbouring elements. Other
  // architectures pair each element of a head's first half with one of its second half.
  const bool pairs = model.architecture == "llama";
  for (const HfTensor& tensor : llama_tensors(config)) {
    const bool is_q = tensor.name.find(".q_proj.") != std::string::npos;
    const bool is_k = tensor.name.find(".k_proj.") != std::string::npos;
    model.parameters.push_back({.parameter = tensor.name,
                                .name = gguf_name(tensor.name),
                                .shape = tensor.shape,
                                .as_asked = tensor.shape.size() == 2,
                                .paired_heads = !pairs ? 0
                                                : is_q ? config.heads
                                                : is_k ? kv_heads_of(config)
                                                       : 0});
  }
  return model;
}

}  // namespace shale::models
