#include "shale/runtime/nn/frozen.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::nn {
namespace {

constexpr std::array kNames = {
    std::pair(FrozenDType::kCompute, std::string_view("auto")),
    std::pair(FrozenDType::kBF16, std::string_view("bf16")),
    std::pair(FrozenDType::kInt8, std::string_view("int8")),
    std::pair(FrozenDType::kNf4, std::string_view("nf4")),
};

void keep(Module& module, FrozenDType dtype, int64_t& count) {
  auto* const layer = dynamic_cast<LinearWeights*>(&module);
  if (layer != nullptr && layer->is_adaptable) {
    layer->keep_as(dtype);
    ++count;
  }
  for (Module* child : module.children()) keep(*child, dtype, count);
}

// Changes the shape of a parameter that has no memory yet.
void reshape_parameter(Parameter& parameter, const Shape& shape) {
  parameter.shape = parameter.whole = shape;
  TensorImpl& impl = parameter.value.impl();
  impl.shape = shape;
  impl.strides = contiguous_strides(shape);
}

}  // namespace

std::string_view frozen_dtype_name(FrozenDType dtype) {
  return kNames[static_cast<size_t>(dtype)].second;
}

std::optional<FrozenDType> find_frozen_dtype(std::string_view name) {
  for (const auto& [dtype, of] : kNames) {
    if (of == name) return dtype;
  }
  return {};
}

std::optional<kernels::BlockCode> code_of(FrozenDType dtype) {
  if (dtype == FrozenDType::kInt8) return kernels::BlockCode::kInt8;
  if (dtype == FrozenDType::kNf4) return kernels::BlockCode::kNf4;
  return {};
}

void LinearWeights::keep_as(FrozenDType dtype) {
  if (kept_as_ != FrozenDType::kCompute || weight.sharding.share != Share::kWhole ||
      weight.value.impl().storage != nullptr) {
    throw InternalError(
        cat(full_name(),
            ": cannot change its dtype: it has been changed already, is sharded, or has memory"));
  }
  kept_as_ = dtype;
  if (dtype == FrozenDType::kCompute) return;
  weight.trainable = false;
  const auto code = code_of(dtype);
  if (!code) return;
  if (in_ % kernels::kCodeBlock != 0) {
    throw ConfigError(cat("frozen weights in ", frozen_dtype_name(dtype), ": ", full_name(), " is ",
                          weight_shape(), ", expected a row length that is a multiple of ",
                          kernels::kCodeBlock));
  }
  weight.init = Init::zeros();
  reshape_parameter(weight, {out_, kernels::coded_row_bytes(*code, in_)});
}

void keep_frozen(Module& root, FrozenDType dtype) {
  int64_t count = 0;
  keep(root, dtype, count);
  if (count == 0)
    throw ConfigError("frozen weights: the model has no linear layer to store in fewer bits");
}

std::optional<DType> kept_dtype(const Parameter& parameter) {
  const auto* const layer = dynamic_cast<const LinearWeights*>(parameter.owner);
  if (layer == nullptr || parameter.name != layer->weight.name) return {};
  if (code_of(layer->kept_as())) return DType::kU8;
  if (layer->kept_as() == FrozenDType::kBF16) return DType::kBF16;
  return {};
}

const LinearWeights* coded_layer(const Parameter& parameter) {
  return kept_dtype(parameter) == DType::kU8 ? dynamic_cast<const LinearWeights*>(parameter.owner)
                                             : nullptr;
}

Tensor thawed(const Tensor& kept, FrozenDType how, const Shape& weight, DType dtype) {
  const auto make = [saved = SavedTensor("frozen weight", kept), how, weight, dtype] {
    const Tensor from = saved.get();
    Tensor values = empty(from.context(), weight, dtype);
    if (const auto code = code_of(how)) {
      kernels::decode_blocks(from.exec(), {.x = from, .y = values, .code = *code});
    } else {
      kernels::axpby(from.exec(), {.a = from, .y = values});
    }
    return values;
  };
  Tensor values = make();
  set_recipe(values, make);
  return values;
}

void encode_rows(const LinearWeights& layer, const View& values, const View& codes) {
  const kernels::BlockCode code = *code_of(layer.kept_as());
  const int64_t columns = values.size(1), bytes = codes.size(1);
  std::vector<uint8_t> row(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < values.size(0); ++i) {
    try {
      kernels::encode_row(code, values.as<float>() + i * columns, columns, row.data());
    } catch (const DataError& error) {
      throw DataError(cat(layer.weight.full_name(), ": ", error.what()));
    }
    std::copy(row.begin(), row.end(), codes.as<float>() + i * bytes);
  }
}

void decode_rows(const LinearWeights& layer, const View& codes, const View& values) {
  const kernels::BlockCode code = *code_of(layer.kept_as());
  const int64_t columns = values.size(1), bytes = codes.size(1);
  std::vector<uint8_t> row(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < values.size(0); ++i) {
    const float* const from = codes.as<float>() + i * bytes;
    std::transform(from, from + bytes, row.begin(),
                   [](float byte) { return static_cast<uint8_t>(byte); });
    kernels::decode_row(code, row.data(), columns, values.as<float>() + i * columns);
  }
}

}  // namespace shale::nn
