#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Sum over rows of the softmax cross-entropy, an f32 scalar. Only the first `vocab` columns count;
// rows with target -1 (kernels::kIgnoreTarget) are excluded. logits: [rows, padded vocabulary],
// contiguous; targets: [rows] i32. If a gradient is needed, it overwrites the logits in the same
// pass (their version counter advances). The gradient already includes the factors of
// backward_seed(), so that small gradients do not underflow in f16. softcap: logits become softcap
// * tanh(logits / softcap) (arXiv:2408.00118, section 2). 0.001 to 1000; 0: off.
Tensor cross_entropy_(Tensor& logits, const Tensor& targets, int64_t vocab, float softcap = 0);
// cross_entropy_() that does not change the logits. They may be any tensor (a view, a result of a
// sharded module) and can be used further. In inference there is no difference. Keeps one more
// tensor of their size, the gradient, for backward.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t vocab, float softcap = 0);

// Cross-entropy with soft targets. In each row the target of class c is (c == targets[row]) -
// softening[row, c], where a row of softening sums to 0. logits and softening: [rows, classes];
// softening is f32. All rows must count. The cross-entropy is linear in the targets, so this is
// cross_entropy() plus the sum of logits times softening.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& softening);

// Options for the loss of an output layer.
struct ClassifierLossOptions {
  // Above 0: at most this many rows of logits exist at a time. Forward then keeps only x, and
  // backward recomputes each chunk (one more GEMM). A bf16 weight gradient is rounded after each
  // chunk.
  int64_t chunk_rows = 0;
  float softcap = 0;  // as in cross_entropy_()
};
// cross_entropy_(x weightᵀ): x [rows, C], weight [padded vocabulary, C].
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t vocab, const ClassifierLossOptions& options = {});

// Loss of each row: [rows] f32; 0 for excluded rows. Keeps the gradient of the logits.
Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                 int64_t vocab, float softcap = 0);

// Reduction of elementwise losses.
enum class LossReduction {
  kMean,  // mean over the elements
  kSum,   // the trainer requires it: its grad_scale is 1 / the step's weight
};

// Elementwise losses, reduced to an f32 scalar. x and target have one shape; computed in f32 for
// all dtypes. Throw ShapeError. Keep x and target.
//
// mse_loss: (x - target)^2
Tensor mse_loss(const Tensor& x, const Tensor& target,
                LossReduction reduction = LossReduction::kMean);
// -t log p - (1 - t) log(1 - p) with p = sigmoid(x): softplus(x) - t x.
Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target,
                            LossReduction reduction = LossReduction::kMean);
// Binary cross-entropy of probabilities p = x in [0, 1]. Values of p and 1 - p below 2^-100 are
// replaced by 2^-100, without a gradient, so that both stay finite.
Tensor bce_loss(const Tensor& x, const Tensor& target,
                LossReduction reduction = LossReduction::kMean);

}  // namespace shale
