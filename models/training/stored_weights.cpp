#include "shale/models/training/stored_weights.h"

#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::models {
namespace {

constexpr const char* kAverage = "/ema";  // behind a parameter's name

void load_tensor(CheckpointReader& reader, const std::string& name, const Tensor& to) {
  const CheckpointTensor* stored = reader.find(name);
  if (stored == nullptr || stored->dtype != DType::kF32 || !(Shape(stored->shape) == to.shape())) {
    throw DataError(cat(reader.path(), ": ", stored == nullptr ? "no" : "another form of",
                        " tensor '", name, "', want fp32", to_string(to.shape())));
  }
  std::vector<float> values(static_cast<size_t>(to.numel()));
  reader.read(name, 0, std::as_writable_bytes(std::span(values)));
  const Tensor from = from_host<float>(to.context(), values, to.shape());
  kernels::axpby(to.context().exec(), {.a = from, .y = to});
}

}  // namespace

void load_weights(CheckpointReader& reader, Module& model, Context& context, bool averaged) {
  for (const Parameter* parameter : model.parameters()) {
    load_tensor(reader, parameter->full_name() + (averaged ? kAverage : ""), parameter->value);
  }
  for (const Buffer* buffer : model.buffers()) {
    if (buffer->persistent && buffer->value.defined() && buffer->value.numel() > 0) {
      load_tensor(reader, buffer->full_name(), buffer->value);
    }
  }
  context.synchronize();
}

bool has_average(const CheckpointReader& reader, const Module& model) {
  const std::vector<Parameter*> parameters = model.parameters();
  return !parameters.empty() && reader.find(parameters.front()->full_name() + kAverage) != nullptr;
}

}  // namespace shale::models
