#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Softmax cross-entropy over the first `vocab` columns of a padded row. The gradient overwrites the
// logits in the same pass:
//   loss[r] = log(sum_j exp(logits[r, j])) - logits[r, target[r]]
//   logits[r, j] = (softmax(logits[r])[j] - [j == target[r]]) * scale,
//   scale = exec.step->grad_scale * exec.step->loss_scale.value
// With a softcap c, c tanh(logits / c) replaces the logits (arXiv:2408.00118, section 2);
// the gradient is with respect to the original logits.
// Padding columns get gradient 0. A target out of range throws DataError on the CPU. Other devices
// cannot check it without synchronising and write NaN to the row's loss and gradient. Rows whose
// target is kIgnoreTarget have loss 0 and gradient 0.
inline constexpr int32_t kIgnoreTarget = -1;

struct CrossEntropyArgs {
  View logits;             // [rows, padded vocabulary] f32, bf16 or f16; overwritten if write_grad
  View targets;            // [rows] i32, in [0, vocab) or kIgnoreTarget
  View losses;             // [rows] f32
  int64_t vocab = 0;       // columns without padding
  bool write_grad = true;  // false: logits are not changed
  float softcap = 0;       // 0.001 to 1000; 0: none
};

// Cross-entropy over a sharded vocabulary: logits are columns [first_column, first_column + cols)
// of the rows. First each shard computes its stats; then the stats of all shards give losses and
// gradients. Per row and shard, stats has
//   (max over its columns, sum of exp(logit - max), the target's logit)
// A shard that has only padding has (-FLT_MAX, 0, -inf), and a shard without the target has -inf
// for its logit.
struct CrossEntropyStatsArgs {
  View logits;   // [rows, cols] f32, bf16 or f16; rows may have a stride
  View targets;  // [rows] i32, in [0, vocab) or kIgnoreTarget, which gives stats of 0
  View stats;    // [rows, 3] f32: the result
  int64_t first_column = 0;
  int64_t vocab = 0;  // columns without padding, summed over all shards
};

// Takes the stats (m_k, s_k, t_k) of all shards, in order: M = max_k m_k, S = sum_k s_k exp(m_k -
// M) as a binary tree over the shards, loss = log S + M - max_k t_k. So all shards compute the same
// losses. Each shard computes its columns of the gradient, as cross_entropy does.
inline constexpr int64_t kMaxVocabularyParts = 32;

struct CrossEntropyGradArgs {
  View logits;    // as in CrossEntropyStatsArgs; overwritten by the gradient if write_grad
  View targets;   // [rows]: as in CrossEntropyStatsArgs
  View stats;     // [parts, rows, 3] f32: stats of all shards
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
