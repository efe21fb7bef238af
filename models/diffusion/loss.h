#pragma once

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/data/device_batch.h"

namespace shale::models {

// Sum over a micro-batch of diffusion_batches() of the mean squared errors of what the model says,
// a scalar f32. With learned variances, of kDdpm alone, the variational bound in bits per element
// is added, which trains the variances and leaves the means as they are (arXiv:2102.09672,
// equations 14 to 16): a variance lies between the posterior's and beta, in the logarithm, by the
// model's further results from -1 to 1. The gradient carries what that of cross_entropy_() does.
Tensor diffusion_loss(Dit& model, DiffusionKind kind, const DeviceBatch& batch);
// The two halves of it: what the model is given, and the loss of what it says, Dit::forward().
Tensor noisy_images(const DeviceBatch& batch);
Tensor loss_of_result(const Dit& model, DiffusionKind kind, const DeviceBatch& batch,
                      const Tensor& said);

}  // namespace shale::models
