#include "shale/runtime/nn/kv_cache.h"

#include "shale/runtime/ops/shape.h"

namespace shale::nn {

std::pair<Tensor, Tensor> CachedLayer::append(const Tensor& k, const Tensor& v) const {
  const int64_t end = length + k.size(1);
  const Tensor fresh = slice(kept, 1, length, end), all = slice(kept, 1, 0, end);
  Tensor fresh_k = part_of(fresh, 0), fresh_v = part_of(fresh, 1);
  copy_(fresh_k, k);
  copy_(fresh_v, v);
  return {part_of(all, 0), part_of(all, 1)};
}

Tensor part_of(const Tensor& parts, int64_t i) {
  const Tensor one = slice(parts, 2, i, i + 1);
  const Shape& s = one.strides();
  return one.alias({one.size(0), one.size(1), one.size(3), one.size(4)}, {s[0], s[1], s[3], s[4]});
}

}  // namespace shale::nn
