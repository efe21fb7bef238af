#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "shale/base/dtype.h"
#include "shale/base/view.h"
#include "shale/models/weights/hf_extras.h"

namespace shale::models {

// File format of an export's weights.
enum class WeightFiles { kSafetensors, kDcp };  // kDcp: format of torch.distributed.checkpoint

// Options of an export.
struct ExportOptions {
  WeightFiles files = WeightFiles::kSafetensors;
  DType dtype = DType::kF32;  // dtype of the weights: f32, bf16 or f16
  int64_t max_shard_bytes = 5'000'000'000;
  // Tokenizer to export with the model; null: none.
  std::shared_ptr<const StoredTokenizer> tokenizer = {};
  HfExtras extras = {};  // extra files of the model's original folder
};

// Writer of a model's published weights. Nothing is visible before commit().
class StoredModelWriter {
 public:
  virtual ~StoredModelWriter() = default;
  // Writes the next parameter. values: the whole parameter, f32, dense, in host memory.
  virtual void write(std::string_view parameter, const View& values) = 0;
  virtual void commit() = 0;  // throws InternalError if a parameter has not been written
};

}  // namespace shale::models
