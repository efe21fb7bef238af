#include "shale/models/llama/hf.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/models/llama/variant.h"

namespace shale::models {
namespace {

// Lists the tensors of a layer.
class LayerTensors {
 public:
  LayerTensors(const LanguageModelConfig& config, int64_t layer, std::vector<HfTensor>& tensors)
      : config_(config),
        variant_(llama_variant(config.family)),
        prefix_(cat("layers.", layer, ".")),
        tensors_(tensors) {}

  void attention() {
    const int64_t D = head_size_of(config_);
    const int64_t queries = config_.heads * D, keys = kv_heads_of(config_) * D;
    const bool qkv_bias = variant_.attention_bias == AttentionBias::kQkv || has_output_bias();
    linear("self_attn.q_proj", queries, config_.width, qkv_bias);
    linear("self_attn.k_proj", keys, config_.width, qkv_bias);
    linear("self_attn.v_proj", keys, config_.width, qkv_bias);
    linear("self_attn.o_proj", config_.width, queries, has_output_bias());
    if (variant_.head_norm == HeadNorm::kNone) return;
    const bool per_head = variant_.head_norm == HeadNorm::kPerHead;
    norm("self_attn.q_norm", per_head ? D : queries);
    norm("self_attn.k_norm", per_head ? D : keys);
  }

  void mlp() {
    const bool bias = variant_.may_have_mlp_bias && config_.mlp_bias;
    linear("mlp.gate_proj", config_.hidden, config_.width, bias);
    linear("mlp.up_proj", config_.hidden, config_.width, bias);
    linear("mlp.down_proj", config_.width, config_.hidden, bias);
  }

  // Adds an MoE block. A file has one tensor per expert; in Shale one tensor holds all experts.
  void mixture() {
    const ExpertsVariant& names = variant_.mixture;
    const int64_t C = config_.width, F = config_.hidden, E = config_.experts;
    tensors_.push_back({.name = cat(prefix_, "mlp.gate.weight"),
                        .shape = {E, C},
                        .parts = {cat(prefix_, names.block, ".gate.weight")}});
    experts("gate_proj", names.gate, {E, F, C});
    experts("up_proj", names.up, {E, F, C});
    experts("down_proj", names.down, {E, C, F});
  }

  void norm(std::string_view name, int64_t size) {
    tensors_.push_back({cat(prefix_, name, ".weight"), {size}});
  }

 private:
  bool has_output_bias() const {
    return variant_.attention_bias == AttentionBias::kAll && config_.attention_bias;
  }
  void experts(std::string_view name, std::string_view file_name, std::vector<int64_t> shape) {
    HfTensor tensor{
        .name = cat(prefix_, "mlp.experts.", name), .shape = std::move(shape), .stacked = true};
    for (int64_t e = 0; e < config_.experts; ++e) {
      tensor.parts.push_back(
          cat(prefix_, variant_.mixture.block, ".experts.", e, ".", file_name, ".weight"));
    }
    tensors_.push_back(std::move(tensor));
  }
  void linear(std::string_view name, int64_t out, int64_t in, bool bias) {
    tensors_.push_back({cat(prefix_, name, ".weight"), {out, in}});
    if (bias) tensors_.push_back({cat(prefix_, name, ".bias"), {out}});
  }

  const LanguageModelConfig& config_;
  const LlamaVariant& variant_;
  std::string prefix_;
  std::vector<HfTensor>& tensors_;
};

// Returns true for rotary frequencies, which old versions of transformers saved.
bool is_frequencies(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace

std::vector<HfTensor> llama_tensors(const LanguageModelConfig& config) {
  const int64_t C = config.width;
  const bool norms_after = llama_variant(config.family).norms_after;
  std::vector<HfTensor> tensors = {{"embed_tokens.weight", {config.vocab, C}}};
  for (int64_t i = 0; i < config.layers; ++i) {
    LayerTensors layer(config, i, tensors);
    if (!norms_after) layer.norm("input_layernorm", C);
    layer.attention();
    layer.norm("post_attention_layernorm", C);
    if (config.experts > 0) {
      layer.mixture();
    } else {
      layer.mlp();
    }
    if (norms_after) layer.norm("post_feedforward_layernorm", C);
  }
  tensors.push_back({"norm.weight", {C}});
  if (!config.tied) tensors.push_back({"lm_head.weight", {config.vocab, C}});
  return tensors;
}

namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr const char* kMetaEmbedding = "tok_embeddings.weight";
constexpr const char* kMetaHead = "output.weight";

// Part of a parameter's name: in Hugging Face's files, in Meta's files.
constexpr std::pair<std::string_view, std::string_view> kMetaNames[] = {
    {"embed_tokens.", "tok_embeddings."},    {"lm_head.", "output."},
    {"input_layernorm.", "attention_norm."}, {"post_attention_layernorm.", "ffn_norm."},
    {"self_attn.q_proj.", "attention.wq."},  {"self_attn.k_proj.", "attention.wk."},
    {"self_attn.v_proj.", "attention.wv."},  {"self_attn.o_proj.", "attention.wo."},
    {"mlp.gate_proj.", "feed_forward.w1."},  {"mlp.down_proj.", "feed_forward.w2."},
    {"mlp.up_proj.", "feed_forward.w3."}};

// Names of torchtitan since 2026: lm_head.weight instead of output.weight, and
// attention.qkv_linear.wq instead of attention.wq.
struct MetaVariant {
  bool has_output = true;
  bool has_qkv_linear = false;
};

std::string meta_name(std::string name, const MetaVariant& variant) {
  if (name == kHead && !variant.has_output) return name;
  for (const auto& [ours, theirs] : kMetaNames) {
    const size_t at = name.find(ours);
    if (at == name.npos) continue;
    name.replace(at, ours.size(), theirs);
    constexpr std::string_view kAttention = "attention.";
    if (variant.has_qkv_linear && ours.ends_with("_proj.") && !ours.ends_with("o_proj.") &&
        theirs.starts_with(kAttention)) {
      name.insert(at + kAttention.size(), "qkv_linear.");
    }
    return name;
  }
  return name;
}

bool is_rotary_table(std::string_view name) {
  return name == "freqs_cis" || name == "rope.freqs";
}

}  // namespace

void pair_heads(std::vector<HfTensor>& tensors, const LanguageModelConfig& config) {
  for (HfTensor& tensor : tensors) {
    if (tensor.name.find("q_proj.") != std::string::npos) tensor.paired_heads = config.heads;
    if (tensor.name.find("k_proj.") != std::string::npos) tensor.paired_heads = kv_heads_of(config);
  }
}

NamedTensors llama_tensors_in(const StoredTensors& files, const std::string& path,
                              const LanguageModelConfig& config) {
  NamedTensors named{llama_tensors(config), llama_layout()};
  const auto has = [&](std::string_view name) {
    return files.find(name) != nullptr || files.find(cat(named.layout.prefix, name)) != nullptr;
  };
  if (!has(kMetaEmbedding)) return named;
  if (config.family != "llama") {
    throw DataError(cat(path, ": ", kMetaEmbedding, " needs a llama model, found ", config.family,
                        " in config.json"));
  }
  const MetaVariant variant{.has_output = has(kMetaHead),
                            .has_qkv_linear = has("layers.0.attention.qkv_linear.wq.weight")};
  pair_heads(named.tensors, config);
  for (HfTensor& tensor : named.tensors) tensor.parts = {meta_name(tensor.name, variant)};
  if (variant.has_output) named.layout.head = kMetaHead;
  named.layout.is_buffer = is_rotary_table;
  return named;
}

HfLayout llama_layout() {
  return {.prefix = "model.", .embedding = "embed_tokens.weight", .is_buffer = is_frequencies};
}

}  // namespace shale::models
