#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// The numbers of the ids, ordered by id and then by number: those of id v are
// order[offsets[v]], ..., order[offsets[v + 1] - 1].
struct SortedIds {
  const int32_t* order = nullptr;    // [ids]
  const int32_t* offsets = nullptr;  // [V + 1]
};

// Sorts i32 ids less `first` on the device. Those outside of [0, V) come after all others, in
// order. The result lies in exec.workspace. Throws ShapeError in the name of `op` for 2^31 ids or
// more.
SortedIds sort_ids(const char* op, const Exec& exec, const View& ids, int64_t first, int64_t V);

}  // namespace shale::kernels::SHALE_BACKEND
