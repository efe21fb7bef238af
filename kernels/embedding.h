#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[b, t] = table[ids[b, t]] + positions[first_position + t]
// An id outside the table is a DataError on the CPU; elsewhere it cannot be looked at without
// waiting, and makes its row of y NaN. Backward leaves it out.
//
// Of a table that is cut by rows, `table` has the rows from first_row on, whole_rows is how many
// there are in all, and the rows of other ids count as zeros here: parts add up to the whole.
struct EmbeddingFwdArgs {
  View ids;          // [B, T] i32
  View table;        // [V, C] f32, bf16 or f16
  View positions{};  // [max T, C], like table; optional
  View y;            // [B, T, C], like table
  int64_t first_position = 0;
  int64_t first_row = 0;
  int64_t whole_rows = 0;  // 0: those of table
};

// Adds dy into gradients of f32 or bf16, each row in order of (b, t): the same bits on every run. A
// row is added up in f32, from what the gradient holds on with accumulate, and rounded once.
// Without accumulate the whole gradient is set, rows that no id names to zero.
struct EmbeddingBwdArgs {
  View ids;            // [B, T] i32
  View dy;             // [B, T, C]
  View d_table{};      // [V, C]; optional
  View d_positions{};  // [max T, C]; optional
  int64_t first_position = 0;
  int64_t first_row = 0;   // as above
  int64_t whole_rows = 0;  // 0: those of d_table
  bool accumulate_table = false;
  bool accumulate_positions = false;
};

void check_args(const EmbeddingFwdArgs& a);
void check_args(const EmbeddingBwdArgs& a);

inline Slot<EmbeddingFwdArgs> embedding_fwd{"embedding_fwd"};
inline Slot<EmbeddingBwdArgs> embedding_bwd{"embedding_bwd"};

}  // namespace shale::kernels
