#pragma once

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/data/device_batch.h"

namespace shale::models {

// Returns the loss of a micro-batch of diffusion_batches(), an f32 scalar: the mean squared error
// of the model's output per sample, summed over samples. The gradient is scaled like that of
// cross_entropy_().
//
// Learned variances (kDdpm only) add the variational bound in bits per element, which trains only
// the variances (arXiv:2102.09672, equations 14 to 16). The model's additional outputs, from -1 to
// 1, interpolate the log variance between that of the posterior and log beta.
Tensor diffusion_loss(Dit& model, DiffusionKind kind, const DeviceBatch& batch);
// The two steps of diffusion_loss() around the model: noisy_images() returns the model's input,
// loss_of_result() the loss of the model's output.
Tensor noisy_images(const DeviceBatch& batch);
Tensor loss_of_result(const Dit& model, DiffusionKind kind, const DeviceBatch& batch,
                      const Tensor& said);

}  // namespace shale::models
