#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Sum over rows of the softmax cross-entropy, a scalar f32. The first `vocab` columns count; rows
// whose target is kernels::kIgnoreTarget do not. logits: [rows, padded vocabulary], contiguous;
// targets: [rows] i32. When a gradient is wanted, logits are overwritten by it in the same pass
// (their version counter moves); it has the factors of backward_seed() then already, so that small
// ones do not vanish in f16.
// softcap: logits count as softcap * tanh(logits / softcap) (arXiv:2408.00118, section 2); from
// 0.001 to 1000, 0: as they are.
Tensor cross_entropy_(Tensor& logits, const Tensor& targets, int64_t vocab, float softcap = 0);
// The same without changing the logits: any tensor will do (a view, what a sharded module returns),
// it can be used further, and in inference nothing differs. Keeps one more tensor of their size for
// backward, the gradient.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t vocab, float softcap = 0);

// The same with targets that are shares: in each row one for every class, 1 for that of `targets`
// and 0 for the others less what `softening` has, which adds up to 0 in a row. logits and
// softening: [rows, classes], the latter f32; of any row that counts. The cross-entropy is linear
// in targets, so that this is cross_entropy() plus the sum of logits times softening.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& softening);

// How an output layer's loss is made.
struct ClassifierLossOptions {
  // Above 0, the logits of at most so many rows exist at a time: forward keeps only x, and backward
  // computes each chunk again (one more GEMM). A gradient of weight in bf16 is rounded after each
  // chunk.
  int64_t chunk_rows = 0;
  float softcap = 0;  // as above
};
// cross_entropy_(x weightᵀ): x [rows, C], weight [padded vocabulary, C].
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t vocab, const ClassifierLossOptions& options = {});

// The loss of each row: [rows] f32, 0 for those that do not count. Keeps the logits' gradient.
Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                 int64_t vocab, float softcap = 0);

// What becomes of the losses of elements.
enum class LossReduction {
  kMean,  // over the elements
  kSum,   // as the trainer wants it, whose grad_scale is 1 / the whole step's weight
};

// Losses of elements, added up: a scalar f32. x and target have one shape; computed in f32 whatever
// their dtypes. Throw ShapeError. Keep x and target.
//
// (x - target)^2
Tensor mse_loss(const Tensor& x, const Tensor& target,
                LossReduction reduction = LossReduction::kMean);
// -t log p - (1 - t) log(1 - p) with p = sigmoid(x): softplus(x) - t x.
Tensor bce_with_logits_loss(const Tensor& x, const Tensor& target,
                            LossReduction reduction = LossReduction::kMean);
// The same of probabilities p = x in [0, 1]; below 2^-100, p and 1 - p count as that, without a
// gradient, so that both stay finite.
Tensor bce_loss(const Tensor& x, const Tensor& target,
                LossReduction reduction = LossReduction::kMean);

}  // namespace shale
