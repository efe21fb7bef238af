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
  // Use of the previous batch's memory by upload().
  enum class Memory {
    kFresh,  // allocates new memory; tensors that are still in use keep the old memory
    // overwrites the previous batch; captured graphs need this, because they use fixed addresses
    kSame,
  };

  DeviceBatch() = default;
  DeviceBatch(Context& context, const Batch& batch) { upload(context, batch, Memory::kFresh); }

  // Copies a batch to the device. uploads: copies while the device computes; null: copies on the
  // compute stream. Throws ShapeError with Memory::kSame if the fields, dtypes or shapes differ
  // from the first batch's.
  void upload(Context& context, const Batch& batch, Memory memory, BatchUploads* uploads = nullptr);

  // Throws InternalError if there is no such field. The message lists the existing names.
  const Tensor& operator[](std::string_view name) const;

 private:
  struct Field {
    std::string name;
    Tensor value;
  };
  std::vector<Field> fields_;
};

}  // namespace shale
