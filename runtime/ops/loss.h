#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Returns the softmax cross-entropy, summed over rows, an f32 scalar. Only the first `vocab`
// columns are classes. Rows with target -1 (kernels::kIgnoreTarget) are excluded. logits: [rows,
// padded vocabulary], contiguous; targets: [rows] i32.
//
// If a gradient is needed, it overwrites the logits in the same pass, and their version counter
// advances. The gradient already includes the factors of backward_seed(), so that small gradients
// do not underflow in f16. softcap: logits become softcap * tanh(logits / softcap)
// (arXiv:2408.00118, section 2). 0.001 to 1000; 0: off.
Tensor cross_entropy_(Tensor& logits, const Tensor& targets, int64_t vocab, float softcap = 0);
// cross_entropy_() that does not change the logits. They may be any tensor (a view, a result of a
// sharded module) and can be used afterwards. Keeps the gradient, a tensor of their size, for
// backward. In inference it is the same as cross_entropy_().
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t vocab, float softcap = 0);

// Cross-entropy with soft targets. The target of class c in a row is (c == targets[row]) -
// softening[row, c], where each row of softening sums to 0. logits and softening: [rows, classes];
// softening is f32. No row may be excluded. Cross-entropy is linear in the targets, so this is
// cross_entropy() plus the sum of logits times softening.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& softening);

// Options for the loss of an output layer.
struct ClassifierLossOptions {
  // Maximum number of rows of logits that exist at a time; 0: all rows. Above 0, forward keeps only
  // x, and backward recomputes each chunk of logits with one more GEMM. A bf16 weight gradient is
  // rounded after each chunk.
  int64_t chunk_rows = 0;
  float softcap = 0;  // see cross_entropy_()
};
// Returns cross_entropy_(x weightᵀ). x: [rows, C]; weight: [padded vocabulary, C].
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t vocab, const ClassifierLossOptions& options = {});

// Returns the loss of each row, [rows] f32; 0 for excluded rows. Keeps the gradient of the logits.
Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                 int64_t vocab, float softcap = 0);

// How elementwise losses become one scalar.
enum class LossReduction {
  kMean,  // mean over the elements
  kSum,   // sum of the elements; required by a trainer, whose grad_scale is 1 / the step's weight
};

// Elementwise losses, reduced to an f32 scalar. x and target have one shape. Computed in f32 for
// all dtypes. Throw ShapeError. Keep x and target.
//
// mse_loss: (x - target)^2
Tensor mse_loss(const Tensor& x, const Tensor& target,
                LossReduction reduction = LossReduction::kMean);
// -t log p - (1 - t) log(1 - p), where t is the target and p = sigmoid(x). Computed as softplus(x)
// - t x.
Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target,
                            LossReduction reduction = LossReduction::kMean);
// Binary cross-entropy of probabilities x in [0, 1]. Values of x and 1 - x below 2^-100 are
// replaced by 2^-100, without a gradient, so that loss and gradient stay finite.
Tensor bce_loss(const Tensor& x, const Tensor& target,
                LossReduction reduction = LossReduction::kMean);

}  // namespace shale
