#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/models/language/model.h"
#include "shale/models/weights/stored_model_writer.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {

// A size of a family that has a name.
struct ModelPreset {
  std::string name;            // of --model: "gpt2-124m"
  LanguageModelConfig config;  // context 0: the sequence length
  double lr = 0;               // a peak rate that suits it
  bool byte_vocab = false;     // for bytes; for tokens it takes another
};

// Published weights of a model in a folder, as Hugging Face tools store them: config.json and
// safetensors files.
class StoredModel {
 public:
  virtual ~StoredModel() = default;
  virtual const LanguageModelConfig& config() const = 0;
  // Fills `to`, dense, in host memory, f32, bf16 or f16, with rows [first_row, first_row +
  // to.size(0)) of the parameter of that name in a model of that configuration; of a vector these
  // are elements. Throws InternalError for another name, ShapeError for rows that it has not.
  virtual void read(std::string_view parameter, const View& to, int64_t first_row = 0) const = 0;
};

struct GgufModel;  // models/language/gguf.h

// Models that are made, described and published alike. docs/adding.md says how one is added.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  virtual std::string name() const = 0;  // "gpt2", as in LanguageModelConfig::family
  virtual std::vector<ModelPreset> presets() const = 0;

  // Throws ConfigError for sizes that cannot be.
  virtual std::unique_ptr<LanguageModel> make(const LanguageModelConfig& config,
                                              const LanguageModelPolicy& policy) const = 0;

  // What checkpoints say of a model's architecture: names, and values as JSON. And the reverse,
  // which throws DataError for what cannot be a model.
  virtual std::map<std::string, std::string> shape(const LanguageModelConfig& config) const = 0;
  virtual LanguageModelConfig parse_shape(const JsonObject& shape) const = 0;

  // ---- Published weights, which a family need not have ----

  // "model_type" in their config.json; empty: there are none, and what follows throws ConfigError.
  virtual std::string hf_model_type() const { return {}; }
  // Throws MissingInputError or DataError that names file and tensor, what was expected and found.
  virtual std::unique_ptr<StoredModel> open(const std::string& folder) const;
  // Throws ConfigError for a dtype that is none of the three, DiskError if the folder cannot be
  // made or the disk has no room.
  virtual std::unique_ptr<StoredModelWriter> create(const std::string& folder,
                                                    const LanguageModelConfig& config,
                                                    const LanguageModelPolicy& policy,
                                                    const ExportOptions& options) const;
  // The parameters of a model in the order in which a writer wants them.
  virtual std::vector<std::string> stored_parameters(const LanguageModelConfig& config) const;

  // Names of parameters in Hugging Face's models, and whether these have linear layers as [in,
  // out].
  virtual std::string hf_name(std::string_view parameter) const;
  virtual bool hf_is_transposed() const { return false; }

  // ---- GGUF files, for llama.cpp: the same parameters in the same order ----

  // Throws ConfigError for a model that llama.cpp would not compute as Shale does; so does a family
  // that has none.
  virtual GgufModel gguf(const LanguageModelConfig& config) const;

 private:
  [[noreturn]] void have_none() const;
};

// ---- For families: what sizes may be ----

// Far above any model, and no product of two overflows.
inline constexpr int64_t kMaxModelSize = int64_t{1} << 30;
inline constexpr int64_t kMaxModelLayers = 10'000;

// Throws ConfigError, "model: <what> is <found>, expected <want>", unless it is ok.
void require_size(bool ok, std::string_view what, int64_t found, std::string_view want);
// A size in a checkpoint's description. Throws DataError unless it is 1 to max.
int64_t shape_size(const JsonObject& shape, std::string_view key, int64_t max = kMaxModelSize);

// ---- All families ----

// Shale's own: models/families.cpp.
std::vector<const ModelFamily*> own_model_families();
// Those, then those that were added.
std::vector<const ModelFamily*> model_families();
// `family` outlives all uses. Throws ConfigError if a family or a preset of that name is there.
void add_model_family(const ModelFamily& family);
// Throws ConfigError that lists the names.
const ModelFamily& model_family(std::string_view name);

// The presets of all families, in their order.
std::vector<std::string> preset_names();
// Throws ConfigError that lists the names.
ModelPreset find_preset(std::string_view name);
// Its configuration; the context is seq_len where the preset leaves it open.
LanguageModelConfig preset(const std::string& name, int64_t seq_len);

// A model of its family, whose parameters have no memory yet.
std::unique_ptr<LanguageModel> make_language_model(const LanguageModelConfig& config,
                                                   const LanguageModelPolicy& policy = {});

// The architecture as a JSON object in canonical form: no blanks, keys in order.
std::string model_shape_json(const LanguageModelConfig& config);
// The reverse. Throws DataError, starting with `source`, for what cannot be a model.
LanguageModelConfig parse_model_shape(std::string_view json, const std::string& source);

// The stored model of a folder, of the family that its config.json names. Throws DataError that
// lists the families for another, and as ModelFamily::open.
std::unique_ptr<StoredModel> open_stored_model(const std::string& folder);

}  // namespace shale::models
