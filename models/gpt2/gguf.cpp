#include "shale/models/gpt2/gguf.h"

#include "shale/base/error.h"

namespace shale::models {
namespace {

// Converts "h.3.attn.c_attn.weight" to "blk.3.attn_qkv.weight".
std::string gguf_name(const std::string& name) {
  struct Renamed {
    std::string_view from, to;
  };
  constexpr Renamed kParts[] = {{"ln_1", "attn_norm"},          {"attn.c_attn", "attn_qkv"},
                                {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"},
                                {"mlp.c_fc", "ffn_up"},         {"mlp.c_proj", "ffn_down"}};
  if (name == "wte.weight") return "token_embd.weight";
  if (name == "wpe.weight") return "position_embd.weight";
  if (name.starts_with("ln_f.")) return "output_norm." + name.substr(5);
  const size_t layer_end = name.find('.', 2), kind = name.rfind('.');
  const std::string layer = name.substr(2, layer_end - 2);
  const std::string part = name.substr(layer_end + 1, kind - layer_end - 1);
  for (const Renamed& renamed : kParts) {
    if (renamed.from == part) return cat("blk.", layer, ".", renamed.to, name.substr(kind));
  }
  throw InternalError(cat("gguf: no name for ", name));
}

}  // namespace

GgufModel gpt2_gguf(const LanguageModelConfig& config, const std::vector<HfTensor>& tensors) {
  if (config.gelu != Gelu::kTanh) {
    throw ConfigError(
        "gguf: the model uses the erf form of GELU, but llama.cpp has only the tanh form; use --to "
        "hf");
  }
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  GgufModel model{.architecture = "gpt2"};
  model.values = {{"gpt2.block_count", number(config.layers)},
                  {"gpt2.context_length", number(config.context)},
                  {"gpt2.embedding_length", number(config.width)},
                  {"gpt2.feed_forward_length", number(4 * config.width)},
                  {"gpt2.attention.head_count", number(config.heads)},
                  {"gpt2.attention.layer_norm_epsilon", config.norm_eps}};
  for (const HfTensor& tensor : tensors) {
    const bool matrix = tensor.shape.size() == 2 && tensor.name != "wpe.weight";
    model.parameters.push_back({.parameter = tensor.name,
                                .name = gguf_name(tensor.name),
                                .shape = tensor.shape,
                                .as_asked = matrix});
  }
  return model;
}

}  // namespace shale::models
