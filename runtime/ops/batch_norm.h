#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Collectives with which batch_norm() uses the rows of all ranks instead of this rank's rows. All
// ranks must call the ops that use them in the same order, in forward and backward.
struct BatchPeers {
  // Gathers the vectors x of all ranks. Returns [ranks, x.numel()].
  std::function<Tensor(const Tensor& x)> gather;
  // Sums x over the ranks, in place.
  std::function<void(const Tensor& x)> sum;
};

// Options of batch_norm() besides the parameters.
struct BatchNormOptions {
  // [C] f32. Training updates them, except when a segment is recomputed. Inference normalises with
  // them.
  Tensor running_mean, running_variance;
  float eps = 1e-5f;
  // Weight of the new statistics: running = (1 - momentum) running + momentum new.
  float momentum = 0.1f;
  bool relu = false;                                  // apply ReLU to the result
  std::shared_ptr<const BatchPeers> peers = nullptr;  // null: statistics of this rank's rows only
};

// Batch norm (arXiv:1502.03167, algorithm 1), fused with the ops that follow it in residual
// networks:
//
// y = (x - mean) / sqrt(var + eps) gain + bias + residual, then ReLU if `relu`
//
// x: [..., C], contiguous; all other dimensions are rows. gain, bias: [C]. residual (optional) and
// y: like x. In training, mean and var are those of the rows, and var divides by the number of
// rows. The running variance divides by rows - 1. Throws ShapeError, DTypeError. Keeps x, gain, two
// f32 per channel and, with relu, y for backward.
Tensor batch_norm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                  const BatchNormOptions& options, const Tensor& residual = {});

}  // namespace shale
