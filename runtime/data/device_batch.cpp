#include "shale/runtime/data/device_batch.h"

#include "shale/base/error.h"
#include "shale/runtime/data/batch_uploads.h"

namespace shale {
namespace {

std::string describe(std::string_view name, DType dtype, const Shape& shape) {
  return cat(name, " ", dtype_name(dtype), " ", shape);
}

}  // namespace

void DeviceBatch::upload(Context& context, const Batch& batch, Memory memory,
                         BatchUploads* uploads) {
  const bool is_first = fields_.empty();
  if (memory == Memory::kFresh || is_first) {
    fields_.clear();
    for (const HostTensor& field : batch.fields) {
      fields_.push_back(
          {field.name, empty(context, field.shape, field.dtype, MemoryTag::kData)});
    }
  }
  if (fields_.size() != batch.fields.size()) {
    throw ShapeError(cat("batch: ", batch.fields.size(), " fields, expected ", fields_.size(),
                         " as in the first batch"));
  }
  std::vector<BatchUploads::Field> copies;
  for (size_t i = 0; i < fields_.size(); ++i) {
    const HostTensor& from = batch.fields[i];
    Tensor& to = fields_[i].value;
    if (from.name != fields_[i].name || from.dtype != to.dtype() || !(from.shape == to.shape())) {
      throw ShapeError(cat("batch: ", describe(from.name, from.dtype, from.shape), ", expected ",
                           describe(fields_[i].name, to.dtype(), to.shape()),
                           " as in the first batch"));
    }
    copies.push_back({.to = to.data(), .bytes = to.bytes(), .from = from.bytes});
  }
  if (uploads != nullptr && context.device().type != DeviceType::kCpu) {
    return uploads->upload(copies);
  }
  for (const auto& [to, bytes, from] : copies) context.copy(to, from.data(), bytes);
}

const Tensor& DeviceBatch::operator[](std::string_view name) const {
  std::string names;
  for (const Field& field : fields_) {
    if (field.name == name) return field.value;
    names += cat(" ", field.name);
  }
  throw InternalError(cat("batch: no field '", name, "', there are:", names));
}

}  // namespace shale
