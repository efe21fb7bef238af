#include "shale/models/language/family.h"

#include <algorithm>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/language/gguf.h"
#include "shale/runtime/io/dcp.h"

namespace shale::models {
namespace {

std::vector<const ModelFamily*>& families() {
  static std::vector<const ModelFamily*> all = own_model_families();
  return all;
}

// Family of a checkpoint that names none. The first versions of Shale had only GPT-2.
constexpr std::string_view kUnsaid = "gpt2";

}  // namespace

std::unique_ptr<StoredModel> ModelFamily::open(const std::string&) const {
  have_none();
}
std::unique_ptr<StoredModel> ModelFamily::open_file(const std::string&) const {
  return nullptr;
}
std::unique_ptr<StoredModelWriter> ModelFamily::create(const std::string&,
                                                       const LanguageModelConfig&,
                                                       const LanguageModelPolicy&,
                                                       const ExportOptions&) const {
  have_none();
}
std::vector<std::string> ModelFamily::stored_parameters(const LanguageModelConfig&) const {
  have_none();
}
std::string ModelFamily::hf_name(std::string_view) const {
  have_none();
}

GgufModel ModelFamily::gguf(const LanguageModelConfig&) const {
  throw ConfigError(
      cat("gguf: models of the family ", name(), " cannot be written as GGUF; use --to hf"));
}
void ModelFamily::have_none() const {
  throw ConfigError(cat("model: ", name(), " models have no Hugging Face format"));
}

void require_size(bool ok, std::string_view what, int64_t found, std::string_view want) {
  if (!ok) throw ConfigError(cat("model: ", what, " is ", found, ", expected ", want));
}

int64_t shape_size(const JsonObject& shape, std::string_view key, int64_t max) {
  const int64_t size = shape.integer(key);
  if (size < 1 || size > max) shape.fail(key, cat("1 to ", max));
  return size;
}

void add_model_family(const ModelFamily& family) {
  for (const ModelFamily* other : families()) {
    if (other->name() == family.name()) {
      throw ConfigError(cat("model: family ", family.name(), " is already registered"));
    }
  }
  const std::vector<std::string> taken = preset_names();
  for (const ModelPreset& preset : family.presets()) {
    if (std::find(taken.begin(), taken.end(), preset.name) != taken.end()) {
      throw ConfigError(cat("model: preset ", preset.name, " is already registered"));
    }
  }
  families().push_back(&family);
}

const ModelFamily& model_family(std::string_view name) {
  std::string known;
  for (const ModelFamily* family : families()) {
    if (family->name() == name) return *family;
    known += cat(" ", family->name());
  }
  throw ConfigError(cat("model: unknown family ", name, ", expected one of:", known));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelFamily* family : families()) {
    for (const ModelPreset& preset : family->presets()) names.push_back(preset.name);
  }
  return names;
}

ModelPreset find_preset(std::string_view name) {
  std::string known;
  for (const ModelFamily* family : families()) {
    for (const ModelPreset& preset : family->presets()) {
      if (preset.name == name) return preset;
      known += cat(" ", preset.name);
    }
  }
  throw ConfigError(cat("model: unknown model ", name, ", expected one of:", known));
}

LanguageModelConfig preset(const std::string& name, int64_t seq_len) {
  LanguageModelConfig config = find_preset(name).config;
  if (config.context == 0) config.context = seq_len;
  return config;
}

std::unique_ptr<LanguageModel> make_language_model(const LanguageModelConfig& config,
                                                   const LanguageModelPolicy& policy) {
  return model_family(config.family).make(config, policy);
}

std::string model_shape_json(const LanguageModelConfig& config) {
  std::map<std::string, std::string> shape = model_family(config.family).shape(config);
  if (config.family != kUnsaid) shape["family"] = cat("\"", config.family, "\"");
  Json json;
  for (const auto& [name, value] : shape) json[name] = Json::parse(value, {}, name);
  return json.dump();
}

LanguageModelConfig parse_model_shape(std::string_view json, const std::string& source) {
  const JsonObject shape(json, source);
  const std::string name = shape.text("family", std::string(kUnsaid));
  std::string known;
  for (const ModelFamily* family : families()) {
    if (family->name() == name) return family->parse_shape(shape);
    known += cat(known.empty() ? "" : ", ", family->name());
  }
  shape.fail("family", cat("one of ", known));
}

namespace {

constexpr const char* kNanoGptFile = "ckpt.pt";

std::unique_ptr<StoredModel> open_model_file(const std::string& path) {
  for (const ModelFamily* family : families()) {
    if (auto model = family->open_file(path)) return model;
  }
  throw DataError(cat(path,
                      ": is a file, expected a ckpt.pt of nanoGPT, a model_*.bin of llm.c, or a "
                      "folder; other weights need the model's config.json in their folder"));
}

void check_is_model(const std::string& folder, const std::string& config) {
  constexpr std::string_view kExpected =
      "expected a Hugging Face folder, a checkpoint or a run of train_lm";
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    throw MissingInputError(cat(folder, ": no such folder; ", kExpected,
                                " on this machine, as Shale does not download models"));
  }
  if (!std::filesystem::exists(config, error)) {
    const bool is_dcp =
        std::filesystem::exists(std::filesystem::path(folder) / kDcpMetadata, error);
    throw MissingInputError(
        cat(config, ": no such file; ",
            is_dcp ? "a checkpoint of torch.distributed.checkpoint does not contain the model's "
                     "sizes: put the model's config.json from Hugging Face into the folder"
                   : kExpected));
  }
}

}  // namespace

std::unique_ptr<StoredModel> open_stored_model(const std::string& folder) {
  const std::filesystem::path root(folder), nanogpt = root / kNanoGptFile;
  const std::string path = (root / "config.json").string();
  std::error_code error;
  if (std::filesystem::is_regular_file(root, error)) return open_model_file(folder);
  if (!std::filesystem::exists(path, error) && std::filesystem::exists(nanogpt, error)) {
    return open_model_file(nanogpt.string());
  }
  check_is_model(folder, path);
  const JsonObject config = JsonObject::load(path);
  if (!config.has("model_type")) {
    throw DataError(cat(path,
                        ": no 'model_type', so this is not a Hugging Face folder; a run has a "
                        "model once it has saved a checkpoint"));
  }
  const std::string type = config.text("model_type");
  std::string known;
  for (const ModelFamily* family : families()) {
    const std::string theirs = family->hf_model_type();
    if (theirs.empty()) continue;
    if (theirs == type) return family->open(folder);
    known += cat(known.empty() ? "\"" : ", \"", theirs, "\"");
  }
  config.fail("model_type", known);
}

}  // namespace shale::models
