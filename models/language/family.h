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

// Named size of a family.
struct ModelPreset {
  std::string name;            // value of --model, for example "gpt2-124m"
  LanguageModelConfig config;  // its context may be 0: use the sequence length
  double lr = 0;               // suitable peak learning rate
  bool byte_vocab = false;  // by default trained on bytes; other tokens change the vocabulary size
};

// Weights of a model in the files of other programs, usually a Hugging Face folder: config.json,
// and weights that StoredTensors reads.
class StoredModel {
 public:
  virtual ~StoredModel() = default;
  virtual const LanguageModelConfig& config() const = 0;
  // Fills `to` (dense, host memory, f32, bf16 or f16) with rows [first_row, first_row + to.size(0))
  // of a parameter of the model; rows of a vector are its elements. Throws InternalError for an
  // unknown name, ShapeError for rows out of range.
  virtual void read(std::string_view parameter, const View& to, int64_t first_row = 0) const = 0;
};

struct GgufModel;  // models/language/gguf.h

// A model architecture: how to make, describe and export its models. docs/contributing/adding.md
// explains how to add one.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  virtual std::string name() const = 0;  // value of LanguageModelConfig::family, for example "gpt2"
  virtual std::vector<ModelPreset> presets() const = 0;

  // Makes a model with unallocated parameters. Throws ConfigError for impossible sizes.
  virtual std::unique_ptr<LanguageModel> make(const LanguageModelConfig& config,
                                              const LanguageModelPolicy& policy) const = 0;

  // shape() converts an architecture to the JSON values, by name, that checkpoints store;
  // parse_shape() converts them back. Throws DataError for impossible values.
  virtual std::map<std::string, std::string> shape(const LanguageModelConfig& config) const = 0;
  virtual LanguageModelConfig parse_shape(const JsonObject& shape) const = 0;

  // ---- Published weights (optional) ----

  // Returns the "model_type" in config.json. Empty: the family does not support published weights,
  // and the functions of this section throw ConfigError.
  virtual std::string hf_model_type() const { return {}; }
  // Opens a Hugging Face folder. Throws MissingInputError. Throws DataError with file, tensor,
  // expected and found values.
  virtual std::unique_ptr<StoredModel> open(const std::string& folder) const;
  // Makes a writer of published weights. Throws ConfigError for an unsupported dtype, DiskError if
  // the folder cannot be created or the disk is full.
  virtual std::unique_ptr<StoredModelWriter> create(const std::string& folder,
                                                    const LanguageModelConfig& config,
                                                    const LanguageModelPolicy& policy,
                                                    const ExportOptions& options) const;
  // Returns the parameter names of a model in the order in which they must be written.
  virtual std::vector<std::string> stored_parameters(const LanguageModelConfig& config) const;

  // hf_name() returns a parameter's name in Hugging Face models. hf_is_transposed() is true if
  // these models store linear layers as [in, out].
  virtual std::string hf_name(std::string_view parameter) const;
  virtual bool hf_is_transposed() const { return false; }

  // ---- GGUF files for llama.cpp: the same parameters in the same order ----

  // Describes the model for a GGUF file. Throws ConfigError if llama.cpp would compute the model
  // differently, or if the family does not support GGUF.
  virtual GgufModel gguf(const LanguageModelConfig& config) const;

  // ---- Files of other trainers that have the model's sizes beside its weights (optional) ----

  // Opens a file of another training program. Returns null for files that are not of this family.
  // Throws DataError.
  virtual std::unique_ptr<StoredModel> open_file(const std::string& path) const;

 private:
  [[noreturn]] void have_none() const;
};

// ---- Limits of sizes, for families ----

// Limit of sizes, far above any model, so that products of two sizes do not overflow.
inline constexpr int64_t kMaxModelSize = int64_t{1} << 30;
inline constexpr int64_t kMaxModelLayers = 10'000;

// Throws ConfigError, "model: <what> is <found>, expected <want>", unless `ok`.
void require_size(bool ok, std::string_view what, int64_t found, std::string_view want);
// Reads a size from a checkpoint's description. Throws DataError unless it is 1 to max.
int64_t shape_size(const JsonObject& shape, std::string_view key, int64_t max = kMaxModelSize);

// ---- All families ----

// Returns Shale's own families (models/families.cpp).
std::vector<const ModelFamily*> own_model_families();
// Registers `family`, which must outlive all uses. Throws ConfigError if there is a family or
// preset of the same name.
void add_model_family(const ModelFamily& family);
// Returns a family. Throws ConfigError, with the list of names, for an unknown name.
const ModelFamily& model_family(std::string_view name);

// Returns the preset names of all families, in their order.
std::vector<std::string> preset_names();
// Returns a preset. Throws ConfigError, with the list of names, for an unknown name.
ModelPreset find_preset(std::string_view name);
// Returns the configuration of a preset. If the preset has no context, it is seq_len.
LanguageModelConfig preset(const std::string& name, int64_t seq_len);

// Makes a model of its family, with unallocated parameters.
std::unique_ptr<LanguageModel> make_language_model(const LanguageModelConfig& config,
                                                   const LanguageModelPolicy& policy = {});

// Returns the model's architecture as canonical JSON: no blanks, keys in order.
std::string model_shape_json(const LanguageModelConfig& config);
// Parses the result of model_shape_json(). Throws DataError, which begins with `source`, for an
// impossible model.
LanguageModelConfig parse_model_shape(std::string_view json, const std::string& source);

// Opens a stored model. `path` is a folder with config.json, which determines the family; a folder
// with ckpt.pt; or a file. Throws DataError for an unknown family, with the list of families, and
// as ModelFamily::open() and open_file().
std::unique_ptr<StoredModel> open_stored_model(const std::string& path);

}  // namespace shale::models
