#pragma once

#include <cstdint>
#include <vector>

#include "shale/kernels/loss_scale.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::optim {

// Which steps are outliers.
struct OutlierOptions {
  double sigmas = 6;     // standard deviations above the mean
  int64_t window = 128;  // steps whose gradient norms are known; at least 2
};

// The gradient norms of the last steps, for checkpoints: all that a resumed run needs.
struct NormWindow {
  std::vector<float> norms;  // a ring: element count % norms.size() is the oldest
  int64_t count = 0;         // norms that were ever put in
};

// Skips steps whose gradient has an unusual norm (kernels::SkipOutlierArgs), as one that overflows
// is skipped: optimizers do nothing. It is decided on the device, by what is the same on all ranks,
// so that neither host nor ranks wait for it.
class OutlierSkip {
 public:
  // Throws ConfigError unless sigmas are above 0 and the window is at least 2.
  OutlierSkip(Context& context, const OutlierOptions& options);

  // Queues the decision, once the norm of the step's gradient is known (clip_grad_norm()).
  void check();

  // state() waits for the device. load() throws DataError for a window of another size.
  NormWindow state() const;
  void load(const NormWindow& state);

 private:
  OutlierOptions options_;
  Tensor norms_, count_;
};

}  // namespace shale::optim
