#pragma once

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/data/device_batch.h"

namespace shale::models {

// Returns the sum over a micro-batch of diffusion_batches() of the mean squared errors of the
// model's output, an f32 scalar. With learned variances (kDdpm only) the variational bound in bits
// per element is added, which trains only the variances (arXiv:2102.09672, equations 14 to 16): the
// logarithm of a variance is interpolated between those of the posterior and of beta by the model's
// additional outputs from -1 to 1. The gradient is scaled like that of cross_entropy_().
Tensor diffusion_loss(Dit& model, DiffusionKind kind, const DeviceBatch& batch);
// The parts of diffusion_loss(): the model's input, and the loss of the model's output.
Tensor noisy_images(const DeviceBatch& batch);
Tensor loss_of_result(const Dit& model, DiffusionKind kind, const DeviceBatch& batch,
                      const Tensor& said);

}  // namespace shale::models
