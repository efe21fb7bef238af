#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/gpt2/hf.h"
#include "shale/runtime/io/json_object.h"

namespace shale {
namespace {

// Limit of sizes, far above any model, so that products of two sizes do not overflow.
constexpr int64_t kMaxSize = int64_t{1} << 30;

std::string config_path(const std::string& folder) {
  return (std::filesystem::path(folder) / models::kHfConfigFile).string();
}

int64_t size_of(const JsonObject& json, std::string_view key) {
  const int64_t value = json.integer(key);
  if (value < 1 || value > kMaxSize) json.fail(key, cat("1 to ", kMaxSize));
  return value;
}

double probability(const JsonObject& json, std::string_view key) {
  const double value = json.real(key, 0.1);
  if (!(value >= 0 && value < 1)) json.fail(key, "a probability, below 1");
  return value;
}

// Throws DataError for variants of GPT-2 whose weights would load, but which compute something
// else.
void reject_variants(const JsonObject& json, int64_t width) {
  const auto require = [&json](std::string_view key, bool want) {
    if (json.flag(key, want) != want) json.fail(key, want ? "true" : "false");
  };
  require("scale_attn_weights", true);
  require("scale_attn_by_inverse_layer_idx", false);
  require("add_cross_attention", false);
  require("is_causal", true);
  if (json.has("quantization_config")) {
    json.fail("quantization_config", "none: weights of F32, BF16 or F16");
  }
  require("tie_word_embeddings", true);
  if (json.integer("n_inner", 4 * width) != 4 * width) {
    json.fail("n_inner", cat("null or ", 4 * width, ", four times n_embd"));
  }
}

bool is_gelu_tanh(const JsonObject& json) {
  const std::string name = json.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return true;
  if (name == "gelu") return false;
  json.fail("activation_function", "gelu_new, gelu_pytorch_tanh or gelu");
}

// Returns the end token. Accepts null or a list, which other models have, as no end token, because
// weights do not depend on it.
std::optional<int64_t> end_token(const JsonObject& json, int64_t vocab) {
  try {
    const int64_t token = json.integer("eos_token_id", -1);
    if (token >= 0 && token < vocab) return token;
  } catch (const DataError&) {
  }
  return std::nullopt;
}

HfGpt2Config config_of(const JsonObject& json) {
  if (json.text("model_type") != "gpt2") json.fail("model_type", "\"gpt2\"");
  HfGpt2Config config;
  config.layers = size_of(json, "n_layer");
  config.width = size_of(json, "n_embd");
  config.heads = size_of(json, "n_head");
  config.vocab = size_of(json, "vocab_size");
  config.context = size_of(json, "n_positions");
  if (config.layers > 10'000) json.fail("n_layer", "at most 10000");
  if (config.width % config.heads != 0) {
    json.fail("n_embd", cat("a multiple of n_head, which is ", config.heads));
  }
  reject_variants(json, config.width);
  config.layer_norm_eps = json.real("layer_norm_epsilon", 1e-5);
  // The epsilon is used as a float; numbers below 1e-30 lose precision in this type.
  if (!(config.layer_norm_eps >= 1e-30 && config.layer_norm_eps <= 1)) {
    json.fail("layer_norm_epsilon", "1e-30 to 1");
  }
  config.gelu_tanh = is_gelu_tanh(json);
  config.resid_dropout = probability(json, "resid_pdrop");
  config.embd_dropout = probability(json, "embd_pdrop");
  config.attn_dropout = probability(json, "attn_pdrop");
  config.initializer_range = json.real("initializer_range", 0.02);
  if (!(config.initializer_range >= 0)) json.fail("initializer_range", "0 or more");
  config.end_token = end_token(json, config.vocab);
  return config;
}

}  // namespace

HfGpt2Config load_gpt2_config(const std::string& folder) {
  return config_of(JsonObject::load(config_path(folder)));
}

HfGpt2Config parse_gpt2_config(std::string_view text, const std::string& source) {
  return config_of({text, source});
}

std::string gpt2_config_json(const HfGpt2Config& config, DType dtype) {
  const Json end = config.end_token ? Json(*config.end_token) : Json();
  const Json json = {
      {"architectures", Json::array({"GPT2LMHeadModel"})},
      {"model_type", "gpt2"},
      {"vocab_size", config.vocab},
      {"n_positions", config.context},
      {"n_embd", config.width},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_inner", nullptr},
      {"activation_function", config.gelu_tanh ? "gelu_new" : "gelu"},
      {"resid_pdrop", config.resid_dropout},
      {"embd_pdrop", config.embd_dropout},
      {"attn_pdrop", config.attn_dropout},
      {"layer_norm_epsilon", config.layer_norm_eps},
      {"initializer_range", config.initializer_range},
      {"scale_attn_weights", true},
      {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},
      {"tie_word_embeddings", true},
      {"use_cache", true},
      {"bos_token_id", end},
      {"eos_token_id", end},
      {"torch_dtype", models::torch_dtype(dtype)},
  };
  return json.dump(2) + "\n";
}

}  // namespace shale
