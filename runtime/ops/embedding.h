#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// y[b, t] = table[ids[b, t]] + positions[first_position + t]. ids: [B, T] i32, in [0, V); table:
// [V, C]; positions: [P, C] with first_position + T <= P, optional. Returns [B, T, C]. Backward
// adds in the order of (b, t), so its bits are the same in every run. Keeps ids. Throws ShapeError,
// DTypeError; DataError for an id outside the table.
//
// If `rows` is given, table has some consecutive rows of a larger table, and ids outside them yield
// zeros. The sum of the results for all parts is then the result for the larger table.
struct TableRows {
  int64_t first = 0;  // index of the table's first row in the larger table
  int64_t whole = 0;  // number of rows of the larger table; 0: the table is whole
};
Tensor embedding(const Tensor& ids, const Tensor& table, const Tensor& positions = {},
                 int64_t first_position = 0, const TableRows& rows = {});

}  // namespace shale
