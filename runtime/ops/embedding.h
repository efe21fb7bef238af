#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// y[b, t] = table[ids[b, t]] + positions[first_position + t]. ids: [B, T] i32, in [0, V); table:
// [V, C]; positions: [P, C] with first_position + T <= P, optional. Returns [B, T, C]. Backward
// adds in order of (b, t), so its bits are the same in every run. Keeps ids. Throws ShapeError,
// DTypeError; DataError for an id outside the table.
//
// With `rows`, table is a part of a larger table; ids outside the part yield zeros, so that the
// results of all parts can be summed.
struct TableRows {
  int64_t first = 0;  // first row of the part in the larger table
  int64_t whole = 0;  // rows of the larger table; 0: the table is whole
};
Tensor embedding(const Tensor& ids, const Tensor& table, const Tensor& positions = {},
                 int64_t first_position = 0, const TableRows& rows = {});

}  // namespace shale
