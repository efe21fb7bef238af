#include "shale/models/weights/checkpoint_values.h"

#include "shale/base/error.h"

namespace shale::models {

Json checkpoint_fact(const CheckpointReader& reader, const char* name) {
  const Json config =
      Json::parse(reader.manifest().config, {.max_bytes = kMaxManifestBytes}, reader.path());
  const Json* found = config.find(name);
  return found == nullptr ? Json() : *found;
}

std::vector<float> read_values(CheckpointReader& reader, const std::string& name,
                               const Shape& shape, bool ema) {
  const std::string stored = name + (ema ? "/ema" : "");
  const CheckpointTensor* const found = reader.find(stored);
  if (found == nullptr || found->dtype != DType::kF32 || !(Shape(found->shape) == shape)) {
    throw DataError(cat(reader.path(), ": expected the tensor '", stored, "', fp32", shape,
                        ", found ", found == nullptr ? "none" : "another dtype or shape",
                        ema ? "; only runs with --ema have averages" : ""));
  }
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  reader.read(stored, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace shale::models
