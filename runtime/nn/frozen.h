#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shale/kernels/block_codes.h"
#include "shale/runtime/nn/layers.h"

namespace shale::nn {

// Storage formats of frozen weights. GEMMs convert them to the dtype of the other operand on use,
// in forward and again in backward (arXiv:2305.14314, section 3).
enum class FrozenDType : uint8_t {
  kCompute,  // in the compute dtype of the FSDP unit
  kBF16,
  kInt8,  // 8 bits, plus one f32 scale per 64 elements of a row (kernels/block_codes.h)
  kNf4,   // 4 bits, plus scales as for kInt8
};
std::string_view frozen_dtype_name(FrozenDType dtype);  // "nf4"
// Returns the format with this name; nullopt if the name is unknown.
std::optional<FrozenDType> find_frozen_dtype(std::string_view name);

// Freezes the weights of all linear layers in the tree that can have an adapter (not tables and
// output layers) and stores them in `dtype`. Call it before the weights have memory. Throws
// ConfigError for a tree without such layers, and for row lengths that are not a multiple of the
// quantization block.
void keep_frozen(Module& root, FrozenDType dtype);

// Returns the dtype in which keep_frozen() stores a parameter; nullopt: its unit's dtype.
std::optional<DType> kept_dtype(const Parameter& parameter);
// Returns the layer whose quantized weight this parameter is; null if it is not quantized.
const LinearWeights* coded_layer(const Parameter& parameter);
std::optional<kernels::BlockCode> code_of(FrozenDType dtype);

// Converts a layer's stored weight to [out, in] values, without a gradient.
Tensor thawed(const Tensor& kept, FrozenDType how, const Shape& weight, DType dtype);

// Quantizes and dequantizes rows in host memory: `values` [n, in]; `codes` [n, bytes per row] as
// f32 numbers 0 to 255, the form that DataParallel::load() and FullState use. encode_rows throws
// DataError for a weight that is not finite.
void encode_rows(const LinearWeights& layer, const View& values, const View& codes);
void decode_rows(const LinearWeights& layer, const View& codes, const View& values);

}  // namespace shale::nn
