#include "shale/models/language_model.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/models/gpt2/gpt2.h"

namespace shale::models {
namespace {

constexpr int64_t kGpt2Vocab = 50257;
constexpr int64_t kGpt2Context = 1024;

struct Preset {
  const char* name;
  int64_t layers, width, heads, vocab, context;  // context 0: the sequence length
  double lr;
};

// Sizes of "Language Models are Unsupervised Multitask Learners" (2019), table 2, with the
// parameter counts of the published weights.
constexpr Preset kPresets[] = {
    {"nano", 4, 128, 4, 256, 0, 3e-3},
    {"gpt2-124m", 12, 768, 12, kGpt2Vocab, kGpt2Context, 6e-4},
    {"gpt2-355m", 24, 1024, 16, kGpt2Vocab, kGpt2Context, 3e-4},
    {"gpt2-774m", 36, 1280, 20, kGpt2Vocab, kGpt2Context, 2.5e-4},
    {"gpt2-1558m", 48, 1600, 25, kGpt2Vocab, kGpt2Context, 2e-4},
};

const Preset& find_preset(const std::string& name) {
  const auto* found = std::find_if(std::begin(kPresets), std::end(kPresets),
                                   [&](const Preset& entry) { return name == entry.name; });
  if (found != std::end(kPresets)) return *found;
  std::string known;
  for (const Preset& entry : kPresets) known += cat(" ", entry.name);
  throw ConfigError(cat("model: unknown model ", name, ", want one of:", known));
}

void require(bool ok, std::string_view what, int64_t found, std::string_view want) {
  if (!ok) throw ConfigError(cat("model: ", what, " is ", found, ", want ", want));
}

}  // namespace

double LanguageModel::flops_per_token(int64_t seq_len) const {
  double count = 0;
  for (const Parameter* parameter : parameters()) count += static_cast<double>(parameter->numel());
  return 6 * count + 6 * static_cast<double>(config_.layers) * static_cast<double>(config_.width) *
                         static_cast<double>(seq_len);
}

int64_t pad_vocab(int64_t vocab) {
  return (vocab + 127) / 128 * 128;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& entry : kPresets) names.emplace_back(entry.name);
  return names;
}

double default_lr(const std::string& preset_name) {
  return find_preset(preset_name).lr;
}

LanguageModelConfig preset(const std::string& name, int64_t seq_len) {
  const Preset& found = find_preset(name);
  LanguageModelConfig config;
  config.layers = found.layers;
  config.width = found.width;
  config.heads = found.heads;
  config.vocab = found.vocab;
  config.padded_vocab = pad_vocab(found.vocab);
  config.context = found.context == 0 ? seq_len : found.context;
  return config;
}

std::unique_ptr<LanguageModel> make_language_model(const LanguageModelConfig& config) {
  require(config.layers >= 1, "layers", config.layers, "at least 1");
  require(config.heads >= 1, "heads", config.heads, "at least 1");
  require(config.vocab >= 1 && config.vocab <= config.padded_vocab, "vocab", config.vocab,
          cat("1 to ", config.padded_vocab));
  require(config.context >= 1, "context", config.context, "at least 1");
  require(config.width >= 1 && config.width % config.heads == 0, "width", config.width,
          cat("a multiple of heads = ", config.heads));
  return std::make_unique<Gpt2>(config);
}

}  // namespace shale::models
