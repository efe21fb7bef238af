#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/batch.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

class BatchUploads;

// A micro-batch on a device.
class DeviceBatch {
 public:
  // How upload() uses the memory of the previous batch.
  enum class Memory {
    kFresh,  // new memory: tensors that are still used keep the old one
    kSame,   // overwrites the previous batch, so that captured graphs find the next batch there
  };

  DeviceBatch() = default;
  DeviceBatch(Context& context, const Batch& batch) { upload(context, batch, Memory::kFresh); }

  // Throws ShapeError with Memory::kSame if the fields, dtypes or shapes differ from the first
  // batch's. uploads: copies while the device computes; null: copies on the compute stream.
  void upload(Context& context, const Batch& batch, Memory memory, BatchUploads* uploads = nullptr);

  // Throws InternalError, with the existing names, if there is no such field.
  const Tensor& operator[](std::string_view name) const;

 private:
  struct Field {
    std::string name;
    Tensor value;
  };
  std::vector<Field> fields_;
};

}  // namespace shale
