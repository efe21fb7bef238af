#pragma once

#include <cstdint>
#include <vector>

#include "shale/kernels/loss_scale.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::optim {

// Definition of an outlier step.
struct OutlierOptions {
  double sigmas = 6;     // standard deviations above the mean
  int64_t window = 128;  // number of recent steps whose gradient norms are used; at least 2
};

// Gradient norms of the last steps, for checkpoints; sufficient to resume.
struct NormWindow {
  std::vector<float> norms;  // ring buffer: element count % norms.size() is the oldest
  int64_t count = 0;         // number of norms added so far
};

// Skips steps with an unusual gradient norm (kernels::SkipOutlierArgs), like steps with an
// overflow: the optimizers do nothing. The device decides, from values that are equal on all ranks,
// so neither the host nor ranks wait for the decision.
class OutlierSkip {
 public:
  // Throws ConfigError unless sigmas are above 0 and the window is at least 2.
  OutlierSkip(Context& context, const OutlierOptions& options);

  // Queues the decision; call it after clip_grad_norm() of the step.
  void check();

  // state() waits for the device. load() throws DataError for another window size.
  NormWindow state() const;
  void load(const NormWindow& state);

 private:
  OutlierOptions options_;
  Tensor norms_, count_;
};

}  // namespace shale::optim
