#pragma once

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/data/device_batch.h"

namespace shale::models {

// Returns the loss of a micro-batch of diffusion_batches(), an f32 scalar: the mean squared errors
// of the model's output, summed over samples. Learned variances (kDdpm only) add the variational
// bound in bits per element, which trains only the variances (arXiv:2102.09672, equations 14 to
// 16): the model's additional outputs, from -1 to 1, interpolate the log variance between those of
// the posterior and of beta. The gradient is scaled like that of cross_entropy_().
Tensor diffusion_loss(Dit& model, DiffusionKind kind, const DeviceBatch& batch);
// The parts of diffusion_loss(): the model's input, and the loss of the model's output.
Tensor noisy_images(const DeviceBatch& batch);
Tensor loss_of_result(const Dit& model, DiffusionKind kind, const DeviceBatch& batch,
                      const Tensor& said);

}  // namespace shale::models
