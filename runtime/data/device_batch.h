#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/batch.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// A micro-batch on a device.
class DeviceBatch {
 public:
  // What becomes of the memory of the batch before.
  enum class Memory {
    kFresh,  // it is let go: whoever still uses those tensors keeps them
    kSame,   // it is written again, so that captured work finds the next batch in it
  };

  DeviceBatch() = default;
  DeviceBatch(Context& context, const Batch& batch) { upload(context, batch, Memory::kFresh); }

  // Throws ShapeError with Memory::kSame for a batch with other fields, types or shapes than the
  // first one.
  void upload(Context& context, const Batch& batch, Memory memory);

  // The field of that name. Throws InternalError, with the names that there are, for another.
  const Tensor& operator[](std::string_view name) const;

 private:
  struct Field {
    std::string name;
    Tensor value;
  };
  std::vector<Field> fields_;
};

}  // namespace shale
