#include "shale/models/model_shape.h"

#include <nlohmann/json.hpp>

#include "shale/base/parse.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

// As in config.json: far above any model, and no product of two overflows.
constexpr int64_t kMaxSize = int64_t{1} << 30;
constexpr int64_t kMaxLayers = 10'000;

}  // namespace

std::string model_shape_json(const LanguageModelConfig& model) {
  const nlohmann::json json = {
      {"layers", model.layers},
      {"width", model.width},
      {"heads", model.heads},
      {"vocab", model.vocab},
      {"padded_vocab", model.padded_vocab},
      {"context", model.context},
      // The digits that a person wrote, not those of the float as a double.
      {"norm_eps", nlohmann::json::parse(format_real(model.norm_eps))},
      {"gelu", model.gelu == Gelu::kTanh ? "tanh" : "erf"},
  };
  return json.dump();
}

LanguageModelConfig parse_model_shape(std::string_view text, const std::string& source) {
  const JsonObject json(text, source);
  const auto size = [&](const char* key, int64_t max) {
    const int64_t value = json.integer(key);
    if (value < 1 || value > max) json.fail(key, cat("1 to ", max));
    return value;
  };
  LanguageModelConfig model;
  model.layers = size("layers", kMaxLayers);
  model.width = size("width", kMaxSize);
  model.heads = size("heads", model.width);
  model.vocab = size("vocab", kMaxSize);
  model.padded_vocab = size("padded_vocab", kMaxSize);
  model.context = size("context", kMaxSize);
  if (model.width % model.heads != 0) json.fail("width", "a multiple of 'heads'");
  if (model.padded_vocab < model.vocab) json.fail("padded_vocab", "at least 'vocab'");
  model.norm_eps = static_cast<float>(json.real("norm_eps"));
  if (!(model.norm_eps > 0 && model.norm_eps <= 1)) json.fail("norm_eps", "above 0, at most 1");
  const std::string gelu = json.text("gelu");
  if (gelu != "tanh" && gelu != "erf") json.fail("gelu", "\"tanh\" or \"erf\"");
  model.gelu = gelu == "tanh" ? Gelu::kTanh : Gelu::kErf;
  return model;
}

}  // namespace shale::models
