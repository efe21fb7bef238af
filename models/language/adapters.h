#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/models/language/family.h"
#include "shale/models/language/lora_config.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_writer.h"

namespace shale::models {

// Adapters as PEFT has them (huggingface/peft, tuners/lora): a folder with adapter_config.json and
// adapter_model.safetensors, whose tensors are called "base_model.model.", the layer's name in
// Hugging Face's models, ".lora_A.weight" or ".lora_B.weight".

// Throws MissingInputError; DataError, with file and key, for what is malformed, or asks for what
// Shale has not: another kind than LORA, biases, DoRA, ranks by pattern, modules saved whole,
// targets by a regular expression, adapters that were taken out of the base's weights (PiSSA and
// its like), and any key that is not known here and asks for something.
AdapterShape read_adapter_shape(const std::string& folder);

// What a checkpoint says of its adapters, as JSON, and the reverse, which throws DataError.
std::string adapter_shape_json(const AdapterShape& shape);
AdapterShape parse_adapter_shape(std::string_view json, const std::string& source);

// The values of a folder.
class StoredAdapters {
 public:
  // Throws MissingInputError, and DataError, with the names, unless the file has the tensors of
  // these layers' adapters, in their shapes, and no others.
  StoredAdapters(const std::string& folder, const ModelFamily& family,
                 const std::vector<nn::LinearWeights*>& layers);
  // As StoredModel::read(), of a parameter of an adapter.
  void read(const Parameter& parameter, const View& to, int64_t first_row) const;

 private:
  SafetensorsFile file_;
  const ModelFamily& family_;
};

// Writes such a folder. Nothing is visible before commit().
class AdapterWriter {
 public:
  // base: the model that they belong to, by its name or folder.
  AdapterWriter(const std::string& folder, const ModelFamily& family, const AdapterShape& shape,
                const std::vector<nn::LinearWeights*>& layers, std::string base);
  // Parameters in the order of the layers, A before B: whole, f32, dense, in host memory.
  void write(const View& values) { writer_.write(values); }
  void commit();

 private:
  std::string folder_, config_;
  SafetensorsWriter writer_;
};

// The parameters of the layers' adapters, in the order in which AdapterWriter wants them.
std::vector<Parameter*> adapter_parameters(const std::vector<nn::LinearWeights*>& layers);

}  // namespace shale::models
