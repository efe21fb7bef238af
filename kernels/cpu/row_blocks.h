#pragma once

#include <algorithm>
#include <cstdint>

#include "shale/base/exec.h"
#include "shale/base/view.h"

namespace shale::kernels {

// Division of rows into blocks for a sum over rows. There are at most 64 blocks, so that the
// partial sums stay small. A block has at least 16 rows, so that the overhead is small. The
// division depends only on the number of rows.
struct RowBlocks {
  explicit RowBlocks(int64_t total_rows)
      : rows(std::max<int64_t>(16, (total_rows + 63) / 64)),
        count((total_rows + rows - 1) / rows) {}
  int64_t rows;
  int64_t count;
};

// Output of a sum over rows.
struct ColumnSums {
  View out;                 // [cols] f32 or bf16
  bool accumulate = false;  // true: out +=, false: out =
};

// Computes out[c] = partial[0, c] + partial[1, c] + ..., rounded once. Rows of `partial` are
// `stride` elements apart.
void combine_blocks(const Exec& exec, const float* partial, int64_t blocks, int64_t stride,
                    const ColumnSums& sums);

}  // namespace shale::kernels
