#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Indices of the ids, sorted by id and then by index: those of id v are order[offsets[v]], ...,
// order[offsets[v + 1] - 1].
struct SortedIds {
  const int32_t* order = nullptr;    // [ids]: the sorted indices
  const int32_t* offsets = nullptr;  // [V + 1]: begin of each id in `order`
};

// Sorts the i32 numbers id - first on the device. Numbers outside [0, V) come last, in their
// original order. The result is in exec.workspace. Throws ShapeError, which names `op`, for 2^31
// ids or more.
SortedIds sort_ids(const char* op, const Exec& exec, const View& ids, int64_t first, int64_t V);

}  // namespace shale::kernels::SHALE_BACKEND
