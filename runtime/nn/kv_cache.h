#pragma once

#include <cstdint>
#include <utility>

#include "shale/runtime/tensor/tensor.h"

namespace shale::nn {

// KV cache of one layer: keys and values of the tokens processed so far.
struct CachedLayer {
  Tensor kept;         // keys and values: [B, capacity, 2, KV heads, D]
  int64_t length = 0;  // number of cached tokens

  // Appends k and v [B, T, heads, D] of the next tokens, T <= capacity - length. Returns keys and
  // values of all tokens as views [B, length + T, heads, D] of `kept`.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v) const;
};

// Returns part i of a tensor with n interleaved parts: the view [B, T, heads, D] at index i of the
// third dimension of [B, T, n, heads, D].
Tensor part_of(const Tensor& parts, int64_t i);

}  // namespace shale::nn
