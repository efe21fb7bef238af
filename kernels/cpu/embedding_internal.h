#pragma once

#include <cstdint>

namespace shale::kernels {

// Positions of a batch sorted by id: those of id v are order[offsets[v]] to order[offsets[v + 1] -
// 1].
struct SortedIds {
  int64_t* offsets = nullptr;
  int64_t* order = nullptr;
};

}  // namespace shale::kernels
