#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Softmax cross-entropy over the first `vocab` columns of a padded row, with its gradient written
// over the logits in the same pass:
//   loss[r] = log(sum_j exp(logits[r, j])) - logits[r, target[r]]
//   logits[r, j] = (softmax(logits[r])[j] - [j == target[r]]) * scale,
//   scale = exec.step->grad_scale * exec.step->loss_scale.value
// With a softcap c, c tanh(logits / c) takes the place of the logits (arXiv:2408.00118, section 2);
// the gradient is that of the logits.
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
  float softcap = 0;       // 0.001 to 1000; 0: none
};

void check_args(const CrossEntropyArgs& a);

inline Slot<CrossEntropyArgs> cross_entropy{"cross_entropy"};

}  // namespace shale::kernels
