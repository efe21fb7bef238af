#include "shale/runtime/data/batch.h"

#include <algorithm>

#include "shale/base/error.h"

namespace shale {

void HostTensor::check_dtype(DType wanted) const {
  if (dtype == wanted) return;
  throw InternalError(cat("batch: the field '", name, "' is ", dtype_name(dtype), ", expected ",
                          dtype_name(wanted)));
}

HostTensor& Batch::set(std::string_view name, DType dtype, const Shape& shape) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(shape.numel()), dtype_size(dtype), &bytes)) {
    throw ShapeError(cat("batch: ", name, " is ", shape, ", whose bytes overflow 64 bits"));
  }
  auto found = std::find_if(fields.begin(), fields.end(),
                            [&](const HostTensor& field) { return field.name == name; });
  if (found == fields.end()) {
    fields.push_back({.name = std::string(name)});
    found = fields.end() - 1;
  }
  found->dtype = dtype;
  found->shape = shape;
  found->bytes.resize(bytes);
  return *found;
}

const HostTensor& Batch::field(std::string_view name) const {
  std::string names;
  for (const HostTensor& field : fields) {
    if (field.name == name) return field;
    names += cat(" ", field.name);
  }
  throw InternalError(cat("batch: no field '", name, "', there are:", names));
}

}  // namespace shale
