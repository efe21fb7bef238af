#pragma once

#include <functional>
#include <memory>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// How the moments of all ranks come together, for statistics over more rows than this rank's.
// Collective: all ranks call the ops that use it in one order, forward and backward.
struct BatchPeers {
  // x: a vector; returns those of all ranks, [ranks, x.numel()].
  std::function<Tensor(const Tensor& x)> gather;
  // Sums over the ranks, in place.
  std::function<void(const Tensor& x)> sum;
};

// What a batch norm is given besides its parameters.
struct BatchNormOptions {
  // [C] f32, which training moves, unless a segment is computed again, and inference normalises
  // with.
  Tensor running_mean, running_variance;
  float eps = 1e-5f;
  float momentum = 0.1f;  // of the new statistics: running = (1 - momentum) running + momentum new
  bool relu = false;      // of the result
  std::shared_ptr<const BatchPeers> peers =
      nullptr;  // null: the statistics are of this rank's rows
};

// Batch norm (arXiv:1502.03167, algorithm 1), with what follows it in residual networks:
//   y = (x - mean) / sqrt(var + eps) gain + bias + residual, and its positive part with relu
// x: [..., C], contiguous, whose other dimensions are rows; gain, bias: [C]; residual, optional,
// and y: like x. In training mean and var (with the number of rows as divisor) are those of the
// rows; the running variance has rows - 1. Throws ShapeError, DTypeError. Keeps x, gain, and with
// relu y, and two f32 per channel for backward.
Tensor batch_norm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                  const BatchNormOptions& options, const Tensor& residual = {});

}  // namespace shale
