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

// Adapters in the format of PEFT (huggingface/peft, tuners/lora): a folder with adapter_config.json
// and adapter_model.safetensors. A tensor name consists of "base_model.model.", the layer's name in
// Hugging Face models, and ".lora_A.weight" or ".lora_B.weight".

// Reads adapter_config.json. Throws MissingInputError if there is none. Throws DataError, with file
// and key, for malformed values, for any unknown key that is set, and for unsupported features:
// types other than LORA, biases, DoRA, rank patterns, modules saved whole, targets by regular
// expression, and initializations that change the base weights (PiSSA and similar).
AdapterShape read_adapter_shape(const std::string& folder);

// adapter_shape_json() converts the shape of adapters to the JSON that checkpoints store;
// parse_adapter_shape() converts it back. Throws DataError.
std::string adapter_shape_json(const AdapterShape& shape);
AdapterShape parse_adapter_shape(std::string_view json, const std::string& source);

// Adapter weights of a folder.
class StoredAdapters {
 public:
  // Throws MissingInputError. Throws DataError, with tensor names, unless the file has exactly the
  // adapter tensors of these layers, in their shapes.
  StoredAdapters(const std::string& folder, const ModelFamily& family,
                 const std::vector<nn::LinearWeights*>& layers);
  // Reads rows of an adapter's parameter, as StoredModel::read() does.
  void read(const Parameter& parameter, const View& to, int64_t first_row) const;

 private:
  SafetensorsFile file_;
  const ModelFamily& family_;
};

// Writer of a folder with adapters. Nothing is visible before commit().
class AdapterWriter {
 public:
  // base: name or folder of the adapters' base model.
  AdapterWriter(const std::string& folder, const ModelFamily& family, const AdapterShape& shape,
                const std::vector<nn::LinearWeights*>& layers, std::string base);
  // Writes the next parameter in the order of adapter_parameters(). values: whole parameter, f32,
  // dense, in host memory.
  void write(const View& values) { writer_.write(values); }
  void commit();

 private:
  std::string folder_, config_;
  SafetensorsWriter writer_;
};

// Returns the adapter parameters in the order of the file: for each layer A, then B.
std::vector<Parameter*> adapter_parameters(const std::vector<nn::LinearWeights*>& layers);

}  // namespace shale::models
