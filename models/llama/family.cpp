#include "shale/models/llama/family.h"

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/language/hf_stored_model.h"
#include "shale/models/llama/gguf.h"
#include "shale/models/llama/hf.h"
#include "shale/models/llama/llama.h"
#include "shale/models/llama/trainer_files.h"
#include "shale/models/llama/variant.h"
#include "shale/models/weights/hf_export.h"

namespace shale::models {
namespace {

constexpr double kLeastSoftcap = 1e-3, kLargestSoftcap = 1e3;  // limits of the attention kernels

struct Size {
  const char* family;
  const char* name;
  int64_t vocab, width, layers, heads, kv_heads, head_size, hidden, context;
  double theta, norm_eps;
  bool tied;
  double lr;
  double factor = 1;  // factor of Llama 3's RoPE scaling, for contexts beyond 8192 tokens
  int64_t experts = 0, active_experts = 0;
  bool renormalise = false;
};

// Sizes are those of published weights; tests compare the parameter counts. Learning rates are
// those of the published recipes or, if there is none, typical values for the size.
constexpr Size kSizes[] = {
    {"llama", "llama-nano", 256, 128, 4, 4, 2, 32, 384, 0, 1e4, 1e-5, true, 3e-3},
    {"llama", "smollm2-135m", 49152, 576, 30, 9, 3, 64, 1536, 8192, 1e5, 1e-5, true, 3e-3},
    {"llama", "llama-160m", 32000, 768, 12, 12, 12, 64, 3072, 2048, 1e4, 1e-6, false, 6e-4},
    {"llama", "smollm2-360m", 49152, 960, 32, 15, 5, 64, 2560, 8192, 1e5, 1e-5, true, 3e-3},
    {"llama", "smollm2-1.7b", 49152, 2048, 24, 32, 32, 64, 8192, 8192, 1.3e5, 1e-5, true, 5e-4},
    {"llama", "tinyllama-1.1b", 32000, 2048, 22, 32, 4, 64, 5632, 2048, 1e4, 1e-5, false, 4e-4},
    {"llama", "llama2-7b", 32000, 4096, 32, 32, 32, 128, 11008, 4096, 1e4, 1e-5, false, 3e-4},
    {"llama", "llama3.1-8b", 128256, 4096, 32, 32, 8, 128, 14336, 131072, 5e5, 1e-5, false, 3e-4,
     8},
    {"llama", "llama3.2-1b", 128256, 2048, 16, 32, 8, 64, 8192, 131072, 5e5, 1e-5, true, 3e-4, 32},
    {"llama", "llama3.2-3b", 128256, 3072, 28, 24, 8, 128, 8192, 131072, 5e5, 1e-5, true, 3e-4, 32},
    {"llama", "llama3.1-70b", 128256, 8192, 80, 64, 8, 128, 28672, 131072, 5e5, 1e-5, false, 1.5e-4,
     8},
    {"mistral", "mistral-7b", 32768, 4096, 32, 32, 8, 128, 14336, 32768, 1e6, 1e-5, false, 3e-4},
    {"qwen2", "qwen2.5-0.5b", 151936, 896, 24, 14, 2, 64, 4864, 32768, 1e6, 1e-6, true, 6e-4},
    {"qwen2", "qwen2.5-1.5b", 151936, 1536, 28, 12, 2, 128, 8960, 32768, 1e6, 1e-6, true, 4e-4},
    {"qwen3", "qwen3-0.6b", 151936, 1024, 28, 16, 8, 128, 3072, 40960, 1e6, 1e-6, true, 6e-4},
    {"qwen3", "qwen3-1.7b", 151936, 2048, 28, 16, 8, 128, 6144, 40960, 1e6, 1e-6, true, 4e-4},
    {"olmo2", "olmo2-1b", 100352, 2048, 16, 16, 16, 128, 8192, 4096, 5e5, 1e-6, false, 4e-4},
    {"olmoe", "moe-nano", 256, 128, 4, 4, 4, 32, 128, 0, 1e4, 1e-5, true, 3e-3, 1, 8, 2},
    {"olmoe", "olmoe-1b-7b", 50304, 2048, 16, 16, 16, 128, 1024, 4096, 1e4, 1e-5, false, 4e-4, 1,
     64, 8},
    {"mixtral", "mixtral-8x7b", 32000, 4096, 32, 32, 8, 128, 14336, 32768, 1e6, 1e-5, false, 3e-4,
     1, 8, 2, true},
    {"qwen3_moe", "qwen3-30b-a3b", 151936, 2048, 48, 32, 4, 128, 768, 40960, 1e6, 1e-6, false, 3e-4,
     1, 128, 8, true},
};

LanguageModelConfig config_of(const Size& size) {
  LanguageModelConfig config;
  config.family = size.family;
  config.layers = size.layers;
  config.width = size.width;
  config.heads = size.heads;
  config.vocab = size.vocab;
  config.padded_vocab = pad_vocab(size.vocab);
  config.context = size.context;
  config.norm_eps = static_cast<float>(size.norm_eps);
  config.tied = size.tied;
  config.kv_heads = size.kv_heads;
  config.head_size = size.head_size == size.width / size.heads ? 0 : size.head_size;
  config.hidden = size.hidden;
  config.experts = size.experts;
  config.active_experts = size.active_experts;
  config.renormalise = size.renormalise;
  config.rope.theta = size.theta;
  if (size.factor > 1) {
    config.rope.scaling = RopeScaling::kLlama3;
    config.rope.factor = size.factor;
    config.rope.original_context = 8192;
  }
  return config;
}

void require_softcap(const char* what, float softcap) {
  if (softcap == 0 || (softcap >= kLeastSoftcap && softcap <= kLargestSoftcap)) return;
  throw ConfigError(cat("model: ", what, " is ", format_real(softcap), ", expected 0, or ",
                        format_real(kLeastSoftcap), " to ", format_real(kLargestSoftcap)));
}

void check(const LanguageModelConfig& c) {
  require_size(c.layers >= 1, "layers", c.layers, "at least 1");
  require_size(c.heads >= 1, "heads", c.heads, "at least 1");
  require_size(c.width >= 1, "width", c.width, "at least 1");
  require_size(c.head_size > 0 || c.width % c.heads == 0, "width", c.width,
               cat("a multiple of heads = ", c.heads));
  require_size(kv_heads_of(c) <= c.heads && c.heads % kv_heads_of(c) == 0, "kv-heads", c.kv_heads,
               cat("a divisor of heads = ", c.heads));
  require_size(c.hidden >= 1, "hidden", c.hidden, "at least 1");
  require_size(c.vocab >= 1 && c.vocab <= c.padded_vocab, "vocab", c.vocab,
               cat("1 to ", c.padded_vocab));
  require_size(c.context >= 1, "context", c.context, "at least 1");
  require_size(c.window >= 0, "window", c.window, "0, or a number of tokens");
  require_size(c.full_layers >= 0 && c.full_layers <= c.layers, "full_layers", c.full_layers,
               cat("0 to layers = ", c.layers));
  check_covers(c.pattern, c.context, /*documents=*/false);
  require_softcap("attention_softcap", c.attention_softcap);
  require_softcap("logit_softcap", c.logit_softcap);
  if (c.mlp_bias)
    throw ConfigError("model: mlp_bias is true, expected false: such biases are not supported");
  if (!llama_variant(c.family).has_experts()) {
    const std::string none = cat("none: ", c.family, " models have no experts");
    require_size(c.experts == 0, "experts", c.experts, none);
    require_size(c.active_experts == 0, "active-experts", c.active_experts, none);
    return;
  }
  require_size(c.experts >= 1 && c.experts <= kMaxExperts, "experts", c.experts,
               cat("1 to ", kMaxExperts));
  require_size(c.active_experts >= 1 && c.active_experts <= c.experts, "active-experts",
               c.active_experts, cat("1 to experts = ", c.experts));
}

// Throws ConfigError for softcaps, because programs that read the exported files would ignore them.
void require_no_softcap(const LanguageModelConfig& c) {
  if (c.attention_softcap == 0 && c.logit_softcap == 0) return;
  throw ConfigError(cat("model: Hugging Face files of ", c.family, " cannot store a softcap of ",
                        c.attention_softcap > 0 ? "attention scores" : "logits"));
}

void require_no_lost_window(const LanguageModelConfig& c) {
  if (c.window == 0 || llama_variant(c.family).window > 0) return;
  throw ConfigError(cat("model: Hugging Face files of ", c.family, " cannot store a window of ",
                        c.window, "; use a family that has one, such as mistral"));
}

// ---- Shapes in checkpoints ----

constexpr std::pair<RopeScaling, const char*> kScalings[] = {{RopeScaling::kNone, "none"},
                                                             {RopeScaling::kLinear, "linear"},
                                                             {RopeScaling::kLlama3, "llama3"},
                                                             {RopeScaling::kYarn, "yarn"}};

std::string quoted(std::string_view text) {
  return cat("\"", text, "\"");
}

const char* flag(bool value) {
  return value ? "true" : "false";
}

std::map<std::string, std::string> rope_shape(const RopeConfig& rope) {
  std::map<std::string, std::string> shape = {{"rope_theta", format_real(rope.theta)}};
  for (const auto& [scaling, name] : kScalings) {
    if (scaling == rope.scaling) shape["rope_scaling"] = quoted(name);
  }
  if (rope.scaling == RopeScaling::kNone) return shape;
  shape["rope_factor"] = format_real(rope.factor);
  if (rope.scaling == RopeScaling::kLinear) return shape;
  shape["rope_original_context"] = cat(rope.original_context);
  if (rope.scaling == RopeScaling::kLlama3) {
    shape["rope_low_freq_factor"] = format_real(rope.low_freq_factor);
    shape["rope_high_freq_factor"] = format_real(rope.high_freq_factor);
  } else {
    shape["rope_beta_fast"] = format_real(rope.beta_fast);
    shape["rope_beta_slow"] = format_real(rope.beta_slow);
    shape["rope_attention_factor"] = format_real(rope.attention_factor);
    shape["rope_truncate"] = flag(rope.truncate);
  }
  return shape;
}

RopeConfig parse_rope(const JsonObject& json) {
  RopeConfig rope;
  rope.theta = json.real("rope_theta");
  const std::string name = json.text("rope_scaling");
  bool known = false;
  for (const auto& [scaling, text] : kScalings) {
    if (name != text) continue;
    rope.scaling = scaling;
    known = true;
  }
  if (!known) json.fail("rope_scaling", "none, linear, llama3 or yarn");
  if (rope.scaling == RopeScaling::kNone) return rope;
  rope.factor = json.real("rope_factor");
  if (rope.scaling == RopeScaling::kLinear) return rope;
  rope.original_context = json.integer("rope_original_context");
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = json.real("rope_low_freq_factor");
    rope.high_freq_factor = json.real("rope_high_freq_factor");
  } else {
    rope.beta_fast = json.real("rope_beta_fast");
    rope.beta_slow = json.real("rope_beta_slow");
    rope.attention_factor = json.real("rope_attention_factor");
    rope.truncate = json.flag("rope_truncate", true);
  }
  return rope;
}

float softcap_of(const JsonObject& json, const char* key) {
  if (!json.has(key)) return 0;
  const double softcap = json.real(key);
  if (!(softcap >= kLeastSoftcap && softcap <= kLargestSoftcap)) {
    json.fail(key, cat(format_real(kLeastSoftcap), " to ", format_real(kLargestSoftcap)));
  }
  return static_cast<float>(softcap);
}

class LlamaFamily final : public ModelFamily {
 public:
  explicit LlamaFamily(const LlamaVariant& variant) : variant_(variant) {}
  std::string name() const override { return std::string(variant_.family); }

  std::vector<ModelPreset> presets() const override {
    std::vector<ModelPreset> presets;
    for (const Size& size : kSizes) {
      if (name() != size.family) continue;
      presets.push_back({.name = size.name,
                         .config = config_of(size),
                         .lr = size.lr,
                         .byte_vocab = size.vocab == 256});
    }
    return presets;
  }

  std::unique_ptr<LanguageModel> make(const LanguageModelConfig& config,
                                      const LanguageModelPolicy& policy) const override {
    check(config);
    if (policy.dropout > 0) {
      throw ConfigError(cat("model: dropout is ", policy.dropout, ", expected 0: ", name(),
                            " models do not support it"));
    }
    return std::make_unique<Llama>(config, policy);
  }

  std::string hf_model_type() const override { return name(); }
  std::string hf_name(std::string_view parameter) const override {
    return llama_layout().file_name(parameter);
  }
  std::unique_ptr<StoredModel> open(const std::string& folder) const override {
    const LanguageModelConfig config = load_llama_config(folder);
    check(config);
    StoredTensors files(folder);
    NamedTensors named = llama_tensors_in(files, folder, config);
    return std::make_unique<HfStoredModel>(config, folder, std::move(files), named.tensors,
                                           std::move(named.layout));
  }
  std::unique_ptr<StoredModel> open_file(const std::string& path) const override {
    if (name() != "llama") return nullptr;
    std::optional<LlamaFile> file = open_llama_file(path);
    if (!file) return nullptr;
    check(file->config);
    HfLayout layout = llama_layout();
    layout.asked_by = "the sizes in the file";
    return std::make_unique<HfStoredModel>(file->config, path, std::move(file->files),
                                           file->tensors, std::move(layout));
  }
  std::unique_ptr<StoredModelWriter> create(const std::string& folder,
                                            const LanguageModelConfig& config,
                                            const LanguageModelPolicy&,
                                            const ExportOptions& options) const override {
    require_no_softcap(config);
    require_no_lost_window(config);
    require_no_pattern(config.pattern, cat("files of ", name()));
    return std::make_unique<HfExport>(folder, llama_tensors(config), llama_layout(),
                                      llama_config_json(config, options.dtype), options);
  }
  std::vector<std::string> stored_parameters(const LanguageModelConfig& config) const override {
    require_no_lost_window(config);  // checks at the start of a run, not only in create()
    std::vector<std::string> names;
    for (const HfTensor& tensor : llama_tensors(config)) names.push_back(tensor.name);
    return names;
  }
  GgufModel gguf(const LanguageModelConfig& config) const override {
    require_no_softcap(config);
    require_no_pattern(config.pattern, "GGUF files");
    return llama_gguf(config);
  }

  std::map<std::string, std::string> shape(const LanguageModelConfig& config) const override {
    std::map<std::string, std::string> shape = {{"layers", cat(config.layers)},
                                                {"width", cat(config.width)},
                                                {"heads", cat(config.heads)},
                                                {"kv_heads", cat(kv_heads_of(config))},
                                                {"head_size", cat(head_size_of(config))},
                                                {"hidden", cat(config.hidden)},
                                                {"vocab", cat(config.vocab)},
                                                {"padded_vocab", cat(config.padded_vocab)},
                                                {"context", cat(config.context)},
                                                {"norm_eps", format_real(config.norm_eps)},
                                                {"tied", flag(config.tied)},
                                                {"attention_bias", flag(config.attention_bias)}};
    if (config.window > 0) {
      shape["window"] = cat(config.window);
      shape["full_layers"] = cat(config.full_layers);
    }
    for (const auto& [key, softcap] : {std::pair("attention_softcap", config.attention_softcap),
                                       {"logit_softcap", config.logit_softcap}}) {
      if (softcap > 0) shape[key] = format_real(softcap);
    }
    if (config.experts > 0) {
      shape["experts"] = cat(config.experts);
      shape["active_experts"] = cat(config.active_experts);
      shape["renormalise"] = flag(config.renormalise);
    }
    shape.merge(rope_shape(config.rope));
    add_shape(config.pattern, shape);
    return shape;
  }

  LanguageModelConfig parse_shape(const JsonObject& json) const override {
    const auto size = [&](const char* key, int64_t max = kMaxModelSize) {
      return shape_size(json, key, max);
    };
    LanguageModelConfig model;
    model.family = name();
    model.layers = size("layers", kMaxModelLayers);
    model.width = size("width");
    model.heads = size("heads");
    model.kv_heads = size("kv_heads", model.heads);
    model.head_size = size("head_size");
    model.hidden = size("hidden");
    model.vocab = size("vocab");
    model.padded_vocab = size("padded_vocab");
    model.context = size("context");
    if (model.heads % model.kv_heads != 0) json.fail("kv_heads", "a divisor of 'heads'");
    if (model.padded_vocab < model.vocab) json.fail("padded_vocab", "at least 'vocab'");
    model.norm_eps = static_cast<float>(json.real("norm_eps"));
    if (!(model.norm_eps > 0 && model.norm_eps <= 1)) json.fail("norm_eps", "above 0, at most 1");
    model.tied = json.flag("tied", true);
    model.attention_bias = json.flag("attention_bias", false);
    if (json.has("window")) {
      model.window = size("window");
      model.full_layers = json.integer("full_layers");
      if (model.full_layers < 0 || model.full_layers > model.layers) {
        json.fail("full_layers", cat("0 to ", model.layers));
      }
    }
    model.attention_softcap = softcap_of(json, "attention_softcap");
    model.logit_softcap = softcap_of(json, "logit_softcap");
    if (variant_.has_experts()) {
      model.experts = size("experts", kMaxExperts);
      model.active_experts = size("active_experts", model.experts);
      model.renormalise = json.flag("renormalise", false);
    }
    model.pattern = parse_pattern(json);
    model.rope = parse_rope(json);
    try {
      rope_frequencies(model.rope, model.head_size);
    } catch (const ConfigError& error) {
      json.fail("rope_scaling", error.what());
    }
    return model;
  }

 private:
  const LlamaVariant& variant_;
};

}  // namespace

std::vector<const ModelFamily*> llama_families() {
  static const std::vector<LlamaFamily> families(std::begin(kLlamaVariants),
                                                 std::end(kLlamaVariants));
  std::vector<const ModelFamily*> all;
  for (const LlamaFamily& family : families) all.push_back(&family);
  return all;
}

}  // namespace shale::models
