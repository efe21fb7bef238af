#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Softmax cross-entropy over the first `vocab` columns of a padded row, with its gradient written
// over the logits in the same pass:
//   loss[r] = log(sum_j exp(logits[r, j])) - logits[r, target[r]]
//   logits[r, j] = (softmax(logits[r])[j] - [j == target[r]]) * scale,
//   scale = exec.step->grad_scale * exec.step->loss_scale.value
// Padding columns get gradient 0. A target out of range is a DataError on the CPU; elsewhere it
// cannot be looked at without waiting, and makes loss and gradient of its row NaN. Rows whose
// target is kIgnoreTarget have loss 0 and gradient 0.
inline constexpr int32_t kIgnoreTarget = -1;

struct CrossEntropyArgs {
  View logits;             // [rows, padded vocabulary] f32, bf16 or f16; overwritten if write_grad
  View targets;            // [rows] i32, in [0, vocab) or kIgnoreTarget
  View losses;             // [rows] f32
  int64_t vocab = 0;       // columns that count
  bool write_grad = true;  // false: logits stay as they are
};

// The same of a vocabulary that is cut: logits are columns [first_column, first_column + cols) of
// rows of which others have the rest. First each part is looked at, then what all parts have found
// makes losses and gradients. Per row and part stats has
//   (max over its columns, sum of exp(logit - max), the target's logit)
// where a part without columns that count has (-FLT_MAX, 0, -inf), and one without the target -inf.
struct CrossEntropyStatsArgs {
  View logits;   // [rows, cols] f32, bf16 or f16; rows may have a stride
  View targets;  // [rows] i32, in [0, vocab) or kIgnoreTarget, whose stats are zeros
  View stats;    // [rows, 3] f32
  int64_t first_column = 0;
  int64_t vocab = 0;  // columns that count, of all parts
};

// With the stats (m_k, s_k, t_k) of all parts, in order: M = max_k m_k, S = sum_k s_k exp(m_k - M)
// as a binary tree over the parts, loss = log S + M - max_k t_k. So every part makes the same
// losses, and its columns of the gradient as cross_entropy does.
inline constexpr int64_t kMaxVocabularyParts = 32;

struct CrossEntropyGradArgs {
  View logits;    // as above; overwritten by the gradient if write_grad
  View targets;   // [rows]
  View stats;     // [parts, rows, 3] f32
  View losses{};  // [rows] f32; optional
  int64_t first_column = 0;
  int64_t vocab = 0;
  bool write_grad = true;
};

void check_args(const CrossEntropyArgs& a);
void check_args(const CrossEntropyStatsArgs& a);
void check_args(const CrossEntropyGradArgs& a);

inline Slot<CrossEntropyArgs> cross_entropy{"cross_entropy"};
inline Slot<CrossEntropyStatsArgs> cross_entropy_stats{"cross_entropy_stats"};
inline Slot<CrossEntropyGradArgs> cross_entropy_grad{"cross_entropy_grad"};

}  // namespace shale::kernels
