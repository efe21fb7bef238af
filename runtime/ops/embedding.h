#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// y[b, t] = table[ids[b, t]] + positions[first_position + t].
// ids: [B, T] i32, in [0, V); table: [V, C]; positions: [P, C] with first_position + T <= P,
// optional. Returns [B, T, C]. The backward adds in order of (b, t): the same bits on every run.
// Keeps ids. Throws ShapeError, DTypeError; DataError for an id outside the table.
//
// With `rows`, table is a part of one: rows of other ids are zeros here, so that parts add up.
struct TableRows {
  int64_t first = 0;  // that the part has
  int64_t whole = 0;  // in all; 0: table is all of them
};
Tensor embedding(const Tensor& ids, const Tensor& table, const Tensor& positions = {},
                 int64_t first_position = 0, const TableRows& rows = {});

}  // namespace shale
