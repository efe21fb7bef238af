#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shale/kernels/block_codes.h"
#include "shale/runtime/nn/layers.h"

namespace shale::nn {

// How frozen weights are kept; products have them in the dtype of what they are multiplied with,
// made when a product asks, in backward again (arXiv:2305.14314, section 3).
enum class FrozenDType : uint8_t {
  kCompute,  // like all parameters of their unit
  kBF16,
  kInt8,  // 8 bits, with an f32 for every 64 of a row (kernels/block_codes.h)
  kNf4,   // 4 bits likewise
};
std::string_view frozen_dtype_name(FrozenDType dtype);  // "nf4"
// The reverse; none: there is no such name.
std::optional<FrozenDType> find_frozen_dtype(std::string_view name);

// Keeps the weights of those linear layers of the tree so that take an adapter: all but tables and
// output layers. Before they have memory. Throws ConfigError for a tree that has none, and for rows
// that are no whole blocks of codes.
void keep_frozen(Module& root, FrozenDType dtype);

// The dtype of a parameter that is kept so; none: it has that of its unit.
std::optional<DType> kept_dtype(const Parameter& parameter);
// The layer whose weight that is, in codes; null: it is not in codes.
const LinearWeights* coded_layer(const Parameter& parameter);
std::optional<kernels::BlockCode> code_of(FrozenDType dtype);

// The weight [out, in] of what a layer keeps, without a gradient.
Tensor thawed(const Tensor& kept, FrozenDType how, const Shape& weight, DType dtype);

// Rows of a coded weight in host memory: `values` [n, in], codes [n, bytes of a row] as numbers of
// 0 to 255, as DataParallel::load() and FullState have them. encode throws DataError for a weight
// that is not finite.
void encode_rows(const LinearWeights& layer, const View& values, const View& codes);
void decode_rows(const LinearWeights& layer, const View& codes, const View& values);

}  // namespace shale::nn
