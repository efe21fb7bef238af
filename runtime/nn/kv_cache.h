#pragma once

#include <cstdint>
#include <utility>

#include "shale/runtime/tensor/tensor.h"

namespace shale::nn {

// A layer's keys and values of the tokens that generation has seen.
struct CachedLayer {
  Tensor kept;         // [B, room, 2, heads of keys and values, D]
  int64_t length = 0;  // tokens in it

  // Takes in k and v [B, T, heads, D] of the tokens that follow, T <= room - length, and returns
  // those of all tokens: views [B, length + T, heads, D] of `kept`.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v) const;
};

// Part `i` of n that lie side by side: a view [B, T, heads, D] of [B, T, n, heads, D].
Tensor part_of(const Tensor& parts, int64_t i);

}  // namespace shale::nn
