#include "shale/models/gpt2/hf.h"

#include "shale/base/error.h"

namespace shale {
namespace {

// Matches "h.<digits>.attn.bias" and ".masked_bias": causal masks saved by old versions.
bool is_mask(std::string_view name) {
  if (!name.starts_with("h.")) return false;
  const size_t end = name.find_first_not_of("0123456789", 2);
  if (end == 2 || end == name.npos) return false;
  const std::string_view rest = name.substr(end);
  return rest == ".attn.bias" || rest == ".attn.masked_bias";
}

}  // namespace

models::HfLayout gpt2_layout() {
  return {.prefix = "transformer.", .embedding = "wte.weight", .is_buffer = is_mask};
}

std::vector<Gpt2Tensor> gpt2_tensors(const HfGpt2Config& config) {
  const int64_t C = config.width;  // width, called C in the table of hf.h
  std::vector<Gpt2Tensor> tensors = {{"wte.weight", {config.vocab, C}, false},
                                     {"wpe.weight", {config.context, C}, false}};
  const auto norm = [&](const std::string& name) {
    tensors.push_back({name + ".weight", {C}, false});
    tensors.push_back({name + ".bias", {C}, false});
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    tensors.push_back({name + ".weight", {out, in}, true});
    tensors.push_back({name + ".bias", {out}, false});
  };
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = cat("h.", i);
    norm(layer + ".ln_1");
    linear(layer + ".attn.c_attn", 3 * C, C);
    linear(layer + ".attn.c_proj", C, C);
    norm(layer + ".ln_2");
    linear(layer + ".mlp.c_fc", 4 * C, C);
    linear(layer + ".mlp.c_proj", C, 4 * C);
  }
  norm("ln_f");
  return tensors;
}

}  // namespace shale
