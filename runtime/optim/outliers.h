#pragma once

#include <cstdint>
#include <vector>

#include "shale/kernels/loss_scale.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::optim {

// Definition of an outlier step.
struct OutlierOptions {
  double sigmas = 6;  // norm of an outlier, in standard deviations above the mean
  // number of recent steps from which mean and standard deviation are computed; at least 2
  int64_t window = 128;
};

// Gradient norms of the last steps. A checkpoint must keep them to resume.
struct NormWindow {
  std::vector<float> norms;  // ring buffer; element count % norms.size() is the oldest norm
  int64_t count = 0;         // number of norms added so far
};

// Skips steps with an unusual gradient norm (kernels::SkipOutlierArgs): the optimizers do nothing,
// as after an overflow. The device decides from values that are equal on all ranks. So neither the
// host nor other ranks wait for the decision.
class OutlierSkip {
 public:
  // Throws ConfigError unless sigmas are above 0 and the window is at least 2.
  OutlierSkip(Context& context, const OutlierOptions& options);

  // Queues the decision for this step. Call it after clip_grad_norm().
  void check();

  // state() waits for the device. load() throws DataError for another window size.
  NormWindow state() const;
  void load(const NormWindow& state);

 private:
  OutlierOptions options_;
  Tensor norms_, count_;
};

}  // namespace shale::optim
