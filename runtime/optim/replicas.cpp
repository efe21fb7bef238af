#include "shale/runtime/optim/replicas.h"

#include <algorithm>

#include "shale/kernels/one_bit.h"

namespace shale {

std::vector<ElementRange> ShardReplicas::owned(std::span<const int64_t> lengths) const {
  int64_t blocks = 0;
  for (const int64_t length : lengths) blocks += kernels::sign_blocks(length);
  const int64_t share = (blocks + size - 1) / size;
  std::vector<ElementRange> ranges;
  int64_t before = 0;  // number of blocks of the vectors before this one
  for (const int64_t length : lengths) {
    const auto element_of = [&](int64_t block) {
      return std::clamp((block - before) * kernels::kSignBlock, int64_t{0}, length);
    };
    const int64_t first = element_of(rank * share), end = element_of((rank + 1) * share);
    ranges.push_back({.first = first, .count = end - first});
    before += kernels::sign_blocks(length);
  }
  return ranges;
}

}  // namespace shale
