#include "shale/models/llama/trainer_files.h"

#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/llama/hf.h"
#include "shale/models/weights/llmc_file.h"

namespace shale::models {
namespace {

// Indices of the sizes in llm.c's header.
enum Field {
  kContext = 2,
  kVocab,
  kLayers,
  kHeads,
  kKvHeads,
  kWidth,
  kTheta = 11,
  kScaled,
  kMajor = 14
};

struct Limit {
  Field field;
  const char* name;
  int64_t most;  // small enough that the number of the model's elements is below 2^63
};
constexpr Limit kLimits[] = {{kContext, "block_size", 1 << 30}, {kVocab, "vocab_size", 1 << 24},
                             {kLayers, "n_layer", 1 << 13},     {kHeads, "n_head", 1 << 20},
                             {kKvHeads, "n_kv_head", 1 << 20},  {kWidth, "n_embd", 1 << 20},
                             {kTheta, "rope_theta", 1 << 30},   {kMajor, "the version", 1 << 10}};

void check_header(const std::string& path, const LlmcFile& file) {
  for (const auto& [field, name, most] : kLimits) {
    const int64_t found = file.header(field);
    if (found >= 1 && found <= most) continue;
    throw DataError(cat(path, ": ", name, " is ", found, ", expected 1 to ", most));
  }
  const int64_t heads = file.header(kHeads), kv_heads = file.header(kKvHeads);
  if (file.header(kWidth) % heads != 0 || heads % kv_heads != 0) {
    throw DataError(cat(path, ": n_embd is ", file.header(kWidth), ", expected a multiple of the ",
                        heads, " heads, and a multiple of the ", kv_heads,
                        " key-value heads as the number of heads"));
  }
  if (file.header(kMajor) != 3) {
    throw DataError(cat(path, ": a Llama ", file.header(kMajor), ", expected a Llama 3"));
  }
}

// Computes the feed-forward width from the file's size, because the header has only a rounded
// multiplier.
int64_t hidden_of(const std::string& path, const LlmcFile& file) {
  const int64_t C = file.header(kWidth), V = file.header(kVocab), L = file.header(kLayers);
  const int64_t keys = C / file.header(kHeads) * file.header(kKvHeads);
  const int64_t others = 2 * V * C + C + L * (2 * C + 2 * C * C + 2 * keys * C);
  const int64_t left = file.values_left() - others, row = 3 * L * C;
  if (left > 0 && left % row == 0) return left / row;
  throw DataError(cat(path, ": ", file.values_left(), " values after the header, expected ", others,
                      " plus a multiple of ", row));
}

LanguageModelConfig config_of(const std::string& path, const LlmcFile& file) {
  Json config = {{"model_type", "llama"},
                 {"hidden_size", file.header(kWidth)},
                 {"intermediate_size", hidden_of(path, file)},
                 {"max_position_embeddings", file.header(kContext)},
                 {"num_attention_heads", file.header(kHeads)},
                 {"num_hidden_layers", file.header(kLayers)},
                 {"num_key_value_heads", file.header(kKvHeads)},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", file.header(kTheta)},
                 {"vocab_size", file.header(kVocab)}};
  if (file.header(kScaled) != 0) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8192}};
  }
  return parse_llama_config(config.dump(), path);
}

}  // namespace

std::optional<LlamaFile> open_llama_file(const std::string& path) {
  constexpr int32_t kMagic = 20240803;
  std::optional<LlmcFile> file = LlmcFile::open(path, kMagic);
  if (!file) return std::nullopt;
  check_header(path, *file);
  const LanguageModelConfig config = config_of(path, *file);
  std::vector<HfTensor> tensors = llama_tensors(config);
  pair_heads(tensors, config);
  std::map<std::string, const HfTensor*, std::less<>> by_name;
  for (const HfTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  const auto add = [&](const std::string& name) { file->add(name, by_name.at(name)->shape); };
  // The file has one kind of tensor for all layers, then the next kind. llm.c stores queries, keys
  // and values of a layer as one tensor, in this order of rows.
  constexpr std::string_view kKinds[][3] = {
      {"input_layernorm"},  {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
      {"self_attn.o_proj"}, {"post_attention_layernorm"},
      {"mlp.up_proj"},      {"mlp.gate_proj"},
      {"mlp.down_proj"}};
  add("embed_tokens.weight");
  for (const auto& kind : kKinds) {
    for (int64_t i = 0; i < config.layers; ++i) {
      for (const std::string_view name : kind) {
        if (!name.empty()) add(cat("layers.", i, ".", name, ".weight"));
      }
    }
  }
  add("norm.weight");
  add("lm_head.weight");
  return LlamaFile{config, std::move(tensors), file->finish()};
}

}  // namespace shale::models
