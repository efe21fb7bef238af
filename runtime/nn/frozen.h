#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shale/kernels/block_codes.h"
#include "shale/runtime/nn/layers.h"

namespace shale::nn {

// Storage formats of frozen weights. A GEMM converts such a weight to the dtype of its other
// operand, in forward and again in backward (arXiv:2305.14314, section 3).
enum class FrozenDType : uint8_t {
  kCompute,  // stored in the compute dtype of the FSDP unit, not quantized
  kBF16,
  kInt8,  // 8 bits, plus one f32 scale per 64 elements of a row (kernels/block_codes.h)
  kNf4,   // 4 bits, with the same scales as kInt8
};
std::string_view frozen_dtype_name(FrozenDType dtype);  // returns a name such as "nf4"
// Returns the format with this name; nullopt if the name is unknown.
std::optional<FrozenDType> find_frozen_dtype(std::string_view name);

// Freezes the weights of all linear layers in the tree that can have an adapter, and stores them in
// `dtype`. Embedding tables and output layers are not among them. Call it before the weights have
// memory. Throws ConfigError for a tree without such layers, and for row lengths that are not a
// multiple of the quantization block.
void keep_frozen(Module& root, FrozenDType dtype);

// Returns the dtype in which keep_frozen() stores a parameter; nullopt: the dtype of its FSDP unit.
std::optional<DType> kept_dtype(const Parameter& parameter);
// Returns the layer to which a quantized weight belongs; null if the parameter is not a quantized
// weight.
const LinearWeights* coded_layer(const Parameter& parameter);
std::optional<kernels::BlockCode> code_of(FrozenDType dtype);

// Converts a layer's stored weight to `dtype` and shape [out, in]. Autograd does not record it.
Tensor thawed(const Tensor& kept, FrozenDType how, const Shape& weight, DType dtype);

// Quantizes and dequantizes rows in host memory. values: [n, in]. codes: [n, bytes per row], each
// byte as an f32 number 0 to 255, as in DataParallel::load() and FullState. encode_rows throws
// DataError for a weight that is not finite.
void encode_rows(const LinearWeights& layer, const View& values, const View& codes);
void decode_rows(const LinearWeights& layer, const View& codes, const View& values);

}  // namespace shale::nn
