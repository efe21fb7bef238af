#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/models/weights/hf_weights.h"
#include "shale/models/weights/stored_model_writer.h"
#include "shale/runtime/io/safetensors_writer.h"

namespace shale::models {

// Returns the name of a dtype in config.json, such as "float32".
const char* torch_dtype(DType dtype);

// Writes a folder for transformers, timm, PyTorch and HfWeights. Files are not visible before
// commit().
class HfExport : public StoredModelWriter {
 public:
  // `config_json`: text of config.json; empty: none. Throws ConfigError for an unsupported dtype,
  // DiskError if the folder cannot be created or the disk is full.
  HfExport(std::string folder, std::vector<HfTensor> tensors, HfLayout layout,
           std::string config_json, const ExportOptions& options);

  // Returns the parameters in the order in which write() expects them. Ranks that gather shards use
  // this order too.
  const std::vector<HfTensor>& tensors() const { return tensors_; }

  // Writes the next parameter. values: whole parameter, f32, dense, in host memory, in Shale's
  // layout. Omits padding rows of the vocabulary. Throws InternalError for an unexpected name,
  // ShapeError.
  void write(std::string_view name, const View& values) override;

  void commit() override;

 private:
  void check_values(const HfTensor& tensor, const View& values) const;
  void write_rows(const HfTensor& tensor, const View& values);

  std::string folder_;
  std::vector<HfTensor> tensors_;
  HfLayout layout_;
  std::string config_json_;
  DType dtype_;
  std::shared_ptr<const StoredTokenizer> tokenizer_;
  HfExtras extras_;
  std::unique_ptr<TensorWriter> writer_;
  size_t next_ = 0;
};

}  // namespace shale::models
