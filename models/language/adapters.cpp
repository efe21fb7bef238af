#include "shale/models/language/adapters.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/convert_internal.h"
#include "shale/runtime/io/file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr JsonLimits kLimits{};

std::string file_name(const ModelFamily& family, const Parameter& parameter) {
  return "base_model.model." + family.hf_name(parameter.full_name());
}

bool is_empty(const Json& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

// Values of init_lora_weights that leave the base weights unchanged. Adapters with these load
// without further steps.
constexpr std::string_view kPlainBeginnings[] = {"gaussian", "eva", "orthogonal"};

// Keys of adapter_config.json that this file reads, or that do not affect what the adapters
// compute.
constexpr std::string_view kKnownKeys[] = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules", "bias",
    "init_lora_weights", "fan_in_fan_out", "task_type", "inference_mode", "auto_mapping",
    "base_model_name_or_path", "revision", "peft_version", "ensure_weight_tying",
    // Keys of unsupported initializations and layer types.
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "megatron_config",
    "megatron_core", "qalora_group_size", "runtime_config"};

// Throws DataError for an initialization that subtracts the initial adapters from the base weights.
// PEFT repeats the subtraction when it loads adapters; Shale does not.
void refuse_beginning(const JsonObject& config, const Json& value) {
  if (value.is_null() || value.is_boolean()) return;
  const auto* const end = std::end(kPlainBeginnings);
  if (value.is_string() && std::find(kPlainBeginnings, end, value.text()) != end) return;
  config.fail(
      "init_lora_weights",
      "true, false, gaussian, eva or orthogonal; other kinds change the base weights: convert the "
      "adapters with PEFT (path_initial_model_for_weight_conversion), or merge them");
}

// Throws DataError for every option that requests an unsupported feature.
void refuse_variants(const JsonObject& config, const Json& all) {
  if (config.text("peft_type") != "LORA") config.fail("peft_type", "LORA");
  if (config.text("bias", "none") != "none") config.fail("bias", "none");
  for (const auto& [key, value] : all.items()) {
    const auto* const end = std::end(kKnownKeys);
    if (key == "init_lora_weights") refuse_beginning(config, value);
    if (std::find(kKnownKeys, end, key) == end && !is_empty(value)) {
      config.fail(key, "no such key: Shale does not support it");
    }
  }
}

}  // namespace

AdapterShape read_adapter_shape(const std::string& folder) {
  const std::string path = (fs::path(folder) / kConfigFile).string();
  const std::string text = read_text_file(path, kLimits.max_bytes);
  const JsonObject config(text, path);
  const Json all = Json::parse(text, kLimits, path);
  refuse_variants(config, all);
  AdapterShape shape{.options = {.rank = config.integer("r"),
                                 .alpha = config.real("lora_alpha"),
                                 .dropout = config.real("lora_dropout", 0),
                                 .rank_stabilized = config.flag("use_rslora", false)},
                     .targets = {}};
  const bool is_text = all.contains("target_modules") && all["target_modules"].is_string();
  if (!is_text) {
    shape.targets = config.texts("target_modules");
  } else if (config.text("target_modules") == nn::kAllLinear) {
    shape.targets = {nn::kAllLinear};
  } else {
    config.fail("target_modules", "a list of names, or all-linear");
  }
  if (shape.options.rank < 1) config.fail("r", "1 or more");
  if (shape.targets.empty()) config.fail("target_modules", "names");
  return shape;
}

std::string adapter_shape_json(const AdapterShape& shape) {
  return Json{{"rank", shape.options.rank},
              {"alpha", shape.options.alpha},
              {"rank_stabilized", shape.options.rank_stabilized},
              {"targets", shape.targets}}
      .dump();
}

AdapterShape parse_adapter_shape(std::string_view text, const std::string& source) {
  const JsonObject json(text, source);
  AdapterShape shape{.options = {.rank = json.integer("rank"),
                                 .alpha = json.real("alpha"),
                                 .dropout = 0,
                                 .rank_stabilized = json.flag("rank_stabilized")},
                     .targets = json.texts("targets")};
  if (shape.options.rank < 1) json.fail("rank", "1 or more");
  return shape;
}

std::vector<Parameter*> adapter_parameters(const std::vector<nn::LinearWeights*>& layers) {
  std::vector<Parameter*> all;
  for (const nn::LinearWeights* layer : layers) {
    all.push_back(&layer->adapter()->a.weight);
    all.push_back(&layer->adapter()->b.weight);
  }
  return all;
}

// ---- Reading ----

StoredAdapters::StoredAdapters(const std::string& folder, const ModelFamily& family,
                               const std::vector<nn::LinearWeights*>& layers)
    : file_((fs::path(folder) / kWeightsFile).string()), family_(family) {
  std::set<std::string> wanted;
  for (const Parameter* parameter : adapter_parameters(layers)) {
    const std::string name = file_name(family, *parameter);
    const SafetensorsEntry* entry = file_.find(name);
    if (entry == nullptr) throw DataError(cat(file_.path(), ": no tensor '", name, "'"));
    const Shape& want = parameter->whole;
    if (!std::equal(want.begin(), want.end(), entry->shape.begin(), entry->shape.end())) {
      throw DataError(cat(file_.path(), ": '", name, "' has ", entry->shape.size(),
                          " dimensions or the wrong sizes, expected ", to_string(want)));
    }
    wanted.insert(name);
  }
  for (const SafetensorsEntry& entry : file_.entries()) {
    if (wanted.contains(entry.name)) continue;
    throw DataError(cat(file_.path(), ": the tensor '", excerpt(entry.name),
                        "' belongs to no layer in target_modules of adapter_config.json"));
  }
}

void StoredAdapters::read(const Parameter& parameter, const View& to, int64_t first_row) const {
  const SafetensorsEntry* entry = file_.find(file_name(family_, parameter));
  if (entry == nullptr) {
    throw InternalError(cat("adapters: no tensor of ", parameter.full_name()));
  }
  const View view = file_.view(*entry);
  const int64_t row = parameter.whole[1];
  io_internal::convert({static_cast<const std::byte*>(view.data), view.dtype}, first_row * row,
                       {static_cast<std::byte*>(to.data), to.dtype}, to.numel());
  file_.check();
}

// ---- Writing ----

namespace {

std::vector<SafetensorsSpec> specs_of(const ModelFamily& family,
                                      const std::vector<nn::LinearWeights*>& layers) {
  std::vector<SafetensorsSpec> specs;
  for (const Parameter* parameter : adapter_parameters(layers)) {
    specs.push_back(
        {file_name(family, *parameter), DType::kF32, {parameter->whole[0], parameter->whole[1]}});
  }
  return specs;
}

// Returns the last component of each layer's name, as in target_modules of adapter_config.json.
std::vector<std::string> target_modules(const std::vector<nn::LinearWeights*>& layers) {
  std::set<std::string> names;
  for (const nn::LinearWeights* layer : layers) names.insert(layer->name());
  return {names.begin(), names.end()};
}

Json config_of(const AdapterShape& shape, const std::vector<nn::LinearWeights*>& layers,
               bool transposed, const std::string& base) {
  // Targets that the user gave as more specific names are written unchanged.
  const bool all = shape.targets == std::vector<std::string>{nn::kAllLinear};
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", shape.options.rank},
          {"lora_alpha", shape.options.alpha},
          {"lora_dropout", shape.options.dropout},
          {"target_modules", all ? target_modules(layers) : shape.targets},
          {"bias", "none"},
          {"fan_in_fan_out", transposed},
          {"use_rslora", shape.options.rank_stabilized},
          {"use_dora", false},
          {"modules_to_save", nullptr},
          {"init_lora_weights", true},
          {"inference_mode", true}};
}

std::string made(const std::string& folder) {
  Folder::make(folder);
  return folder;
}

}  // namespace

AdapterWriter::AdapterWriter(const std::string& folder, const ModelFamily& family,
                             const AdapterShape& shape,
                             const std::vector<nn::LinearWeights*>& layers, std::string base)
    : folder_(made(folder)),
      config_(config_of(shape, layers, family.hf_is_transposed(), base).dump(2) + "\n"),
      writer_((fs::path(folder) / kWeightsFile).string(), specs_of(family, layers)) {}

void AdapterWriter::commit() {
  writer_.commit();
  write_file_atomically((fs::path(folder_) / kConfigFile).string(), config_);
}

}  // namespace shale::models
