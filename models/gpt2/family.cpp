#include "shale/models/gpt2/family.h"

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/gpt2/gguf.h"
#include "shale/models/gpt2/gpt2.h"
#include "shale/models/gpt2/hf.h"
#include "shale/models/gpt2/trainer_files.h"
#include "shale/models/language/hf_stored_model.h"

namespace shale::models {
namespace {

constexpr int64_t kVocab = 50257;
constexpr int64_t kContext = 1024;

struct Size {
  const char* name;
  int64_t layers, width, heads, vocab, context;
  double lr;
};

// Sizes are those of "Language Models are Unsupervised Multitask Learners" (2019), table 2, with
// the parameter counts of the published weights. Learning rates are those of "Language Models are
// Few-Shot Learners" (arXiv:2005.14165), table 2.1, if it lists the size.
constexpr Size kSizes[] = {
    {"nano", 4, 128, 4, 256, 0, 3e-3},
    {"gpt2-124m", 12, 768, 12, kVocab, kContext, 6e-4},
    {"gpt2-355m", 24, 1024, 16, kVocab, kContext, 3e-4},
    {"gpt2-774m", 36, 1280, 20, kVocab, kContext, 2.5e-4},
    {"gpt2-1558m", 48, 1600, 25, kVocab, kContext, 2e-4},
};

// Converts a model configuration to config.json fields.
HfGpt2Config to_hf(const LanguageModelConfig& config, const LanguageModelPolicy& policy) {
  // The end token is the last token of GPT-2's vocabulary. Byte models use byte 0, which separates
  // files.
  std::optional<int64_t> end_token;
  if (config.vocab == kVocab) end_token = kVocab - 1;
  if (config.vocab == 256) end_token = 0;
  return {.layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .vocab = config.vocab,
          .context = config.context,
          .layer_norm_eps = parse_real(format_real(config.norm_eps)).value(),
          .gelu_tanh = config.gelu == Gelu::kTanh,
          .resid_dropout = policy.dropout,
          .embd_dropout = policy.dropout,
          .attn_dropout = 0,
          .end_token = end_token};
}

LanguageModelConfig from_hf(const HfGpt2Config& stored) {
  LanguageModelConfig config;
  config.layers = stored.layers;
  config.width = stored.width;
  config.heads = stored.heads;
  config.vocab = stored.vocab;
  config.padded_vocab = pad_vocab(stored.vocab);
  config.context = stored.context;
  config.norm_eps = static_cast<float>(stored.layer_norm_eps);
  config.gelu = stored.gelu_tanh ? Gelu::kTanh : Gelu::kErf;
  return config;
}

class Gpt2Family final : public ModelFamily {
 public:
  std::string name() const override { return "gpt2"; }
  std::string hf_model_type() const override { return "gpt2"; }
  std::string hf_name(std::string_view parameter) const override {
    return gpt2_layout().file_name(parameter);
  }
  bool hf_is_transposed() const override { return true; }

  std::vector<ModelPreset> presets() const override {
    std::vector<ModelPreset> presets;
    for (const Size& size : kSizes) {
      presets.push_back({.name = size.name,
                         .config = {.layers = size.layers,
                                    .width = size.width,
                                    .heads = size.heads,
                                    .vocab = size.vocab,
                                    .padded_vocab = pad_vocab(size.vocab),
                                    .context = size.context},
                         .lr = size.lr,
                         .byte_vocab = size.vocab == 256});
    }
    return presets;
  }

  std::unique_ptr<LanguageModel> make(const LanguageModelConfig& config,
                                      const LanguageModelPolicy& policy) const override {
    require_size(config.layers >= 1, "layers", config.layers, "at least 1");
    require_size(config.heads >= 1, "heads", config.heads, "at least 1");
    require_size(config.vocab >= 1 && config.vocab <= config.padded_vocab, "vocab", config.vocab,
                 cat("1 to ", config.padded_vocab));
    require_size(config.context >= 1, "context", config.context, "at least 1");
    require_size(config.width >= 1 && config.width % config.heads == 0, "width", config.width,
                 cat("a multiple of heads = ", config.heads));
    for (const auto& [what, size] : {std::pair("kv-heads", config.kv_heads),
                                     {"hidden", config.hidden},
                                     {"window", config.window},
                                     {"experts", config.experts},
                                     {"active-experts", config.active_experts}}) {
      require_size(size == 0, what, size, "none: gpt2 models have no such size");
    }
    check_covers(config.pattern, config.context, /*documents=*/false);
    if (config.attention_softcap != 0 || config.logit_softcap != 0) {
      throw ConfigError("model: gpt2 models do not support softcaps, expected 0");
    }
    return std::make_unique<Gpt2>(config, policy);
  }

  std::map<std::string, std::string> shape(const LanguageModelConfig& config) const override {
    std::map<std::string, std::string> shape = {
        {"layers", cat(config.layers)},
        {"width", cat(config.width)},
        {"heads", cat(config.heads)},
        {"vocab", cat(config.vocab)},
        {"padded_vocab", cat(config.padded_vocab)},
        {"context", cat(config.context)},
        {"norm_eps", format_real(config.norm_eps)},
        {"gelu", config.gelu == Gelu::kTanh ? "\"tanh\"" : "\"erf\""}};
    add_shape(config.pattern, shape);
    return shape;
  }

  LanguageModelConfig parse_shape(const JsonObject& json) const override {
    const auto size = [&](const char* key, int64_t max = kMaxModelSize) {
      return shape_size(json, key, max);
    };
    LanguageModelConfig model;
    model.layers = size("layers", kMaxModelLayers);
    model.width = size("width");
    model.heads = size("heads", model.width);
    model.vocab = size("vocab");
    model.padded_vocab = size("padded_vocab");
    model.context = size("context");
    if (model.width % model.heads != 0) json.fail("width", "a multiple of 'heads'");
    if (model.padded_vocab < model.vocab) json.fail("padded_vocab", "at least 'vocab'");
    model.norm_eps = static_cast<float>(json.real("norm_eps"));
    if (!(model.norm_eps > 0 && model.norm_eps <= 1)) json.fail("norm_eps", "above 0, at most 1");
    const std::string gelu = json.text("gelu");
    if (gelu != "tanh" && gelu != "erf") json.fail("gelu", "\"tanh\" or \"erf\"");
    model.gelu = gelu == "tanh" ? Gelu::kTanh : Gelu::kErf;
    model.pattern = parse_pattern(json);
    return model;
  }

  std::unique_ptr<StoredModel> open(const std::string& folder) const override {
    const HfGpt2Config stored = load_gpt2_config(folder);
    StoredTensors files(folder);
    std::vector<Gpt2Tensor> tensors = gpt2_tensors(stored);
    find_orientation(files, tensors);
    return std::make_unique<HfStoredModel>(from_hf(stored), folder, std::move(files), tensors,
                                           gpt2_layout());
  }
  std::unique_ptr<StoredModel> open_file(const std::string& path) const override {
    std::optional<Gpt2File> file = open_gpt2_file(path);
    if (!file) return nullptr;
    HfLayout layout = gpt2_layout();
    layout.asked_by = "the sizes in the file";
    return std::make_unique<HfStoredModel>(from_hf(file->config), path, std::move(file->files),
                                           file->tensors, std::move(layout));
  }
  std::unique_ptr<StoredModelWriter> create(const std::string& folder,
                                            const LanguageModelConfig& config,
                                            const LanguageModelPolicy& policy,
                                            const ExportOptions& options) const override {
    require_no_pattern(config.pattern, "files of gpt2");
    return std::make_unique<Gpt2Export>(folder, to_hf(config, policy), options);
  }
  std::vector<std::string> stored_parameters(const LanguageModelConfig& config) const override {
    std::vector<std::string> names;
    for (const Gpt2Tensor& tensor : gpt2_tensors(to_hf(config, {}))) names.push_back(tensor.name);
    return names;
  }
  GgufModel gguf(const LanguageModelConfig& config) const override {
    require_no_pattern(config.pattern, "GGUF files");
    return gpt2_gguf(config, gpt2_tensors(to_hf(config, {})));
  }
};

}  // namespace

const ModelFamily& gpt2_family() {
  static const Gpt2Family family;
  return family;
}

}  // namespace shale::models
