#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[b, t] = table[ids[b, t]] + positions[first_position + t]
// An id outside the table throws DataError on the CPU. Other devices cannot check it without
// synchronising and write NaN to its row of y. Backward ignores such ids.
//
// If the table is sharded by rows, `table` has the rows from first_row on and whole_rows is the
// total number of rows. Rows of other shards count as zeros, so the results of all shards add up to
// the whole result.
struct EmbeddingFwdArgs {
  View ids;          // [B, T] i32
  View table;        // [V, C] f32, bf16 or f16
  View positions{};  // [max T, C], same dtype as table; optional
  View y;            // [B, T, C], same dtype as table
  int64_t first_position = 0;
  int64_t first_row = 0;
  int64_t whole_rows = 0;  // total rows if the table is sharded; 0: not sharded
};

// Accumulates dy into gradients of f32 or bf16, each row in order of (b, t), so results are the
// same on every run. A row is summed in f32, starting from the existing value with accumulate, and
// rounded once. Without accumulate, rows that no id selects become zero.
struct EmbeddingBwdArgs {
  View ids;            // [B, T] i32
  View dy;             // [B, T, C]
  View d_table{};      // [V, C]; optional
  View d_positions{};  // [max T, C]; optional
  int64_t first_position = 0;
  int64_t first_row = 0;   // as in EmbeddingFwdArgs
  int64_t whole_rows = 0;  // total rows if the table is sharded; 0: not sharded
  bool accumulate_table = false;
  bool accumulate_positions = false;
};

void check_args(const EmbeddingFwdArgs& a);
void check_args(const EmbeddingBwdArgs& a);

inline Slot<EmbeddingFwdArgs> embedding_fwd{"embedding_fwd"};
inline Slot<EmbeddingBwdArgs> embedding_bwd{"embedding_bwd"};

}  // namespace shale::kernels
