#include "shale/runtime/optim/outliers.h"

#include "shale/base/error.h"
#include "shale/runtime/tensor/context.h"

namespace shale::optim {

OutlierSkip::OutlierSkip(Context& context, const OutlierOptions& options) : options_(options) {
  if (!(options.sigmas > 0)) {
    throw ConfigError(cat("outliers: sigmas are ", options.sigmas, ", expected more than 0"));
  }
  if (options.window < 2) {
    throw ConfigError(cat("outliers: the window is ", options.window, ", expected at least 2"));
  }
  norms_ = zeros(context, {options.window}, DType::kF32, MemoryTag::kData);
  count_ = zeros(context, {}, DType::kI64, MemoryTag::kData);
}

void OutlierSkip::check() {
  kernels::skip_outliers(norms_.exec(),
                         {.norms = norms_, .count = count_, .sigmas = options_.sigmas});
}

NormWindow OutlierSkip::state() const {
  return {.norms = to_host<float>(norms_), .count = to_host<int64_t>(count_).front()};
}

void OutlierSkip::load(const NormWindow& state) {
  const auto size = static_cast<int64_t>(state.norms.size());
  if (size != options_.window || state.count < 0) {
    throw DataError(cat("outliers: the stored state has ", state.count,
                        " gradient norms in a window of ", size, ", expected a window of ",
                        options_.window));
  }
  Context& context = norms_.context();
  context.copy(norms_.data(), state.norms.data(), norms_.bytes());
  context.copy(count_.data(), &state.count, count_.bytes());
  context.synchronize();
}

}  // namespace shale::optim
