#include "shale/runtime/amp/grad_scaler.h"

#include <string_view>

#include "shale/base/error.h"

namespace shale::amp {
namespace {

void require(bool ok, std::string_view what, double found, std::string_view want) {
  if (!ok) throw ConfigError(cat("loss scale: ", what, " is ", found, ", expected ", want));
}

kernels::LossScaleArgs checked(const GradScalerOptions& o) {
  kernels::LossScaleArgs args;
  require(o.min_scale > 0, "min_scale", o.min_scale, "more than 0");
  require(o.initial_scale >= o.min_scale && o.initial_scale <= args.max_value, "initial_scale",
          o.initial_scale, cat(o.min_scale, " to ", args.max_value));
  require(o.growth_factor >= 1, "growth_factor", o.growth_factor, "at least 1");
  require(o.backoff_factor > 0 && o.backoff_factor < 1, "backoff_factor", o.backoff_factor,
          "more than 0 and less than 1");
  require(o.growth_interval >= 1, "growth_interval", double(o.growth_interval), "at least 1");
  require(o.hysteresis >= 1, "hysteresis", double(o.hysteresis), "at least 1");
  args.growth_factor = o.growth_factor;
  args.backoff_factor = o.backoff_factor;
  args.growth_interval = static_cast<uint32_t>(o.growth_interval);
  args.hysteresis = static_cast<uint32_t>(o.hysteresis);
  args.min_value = o.min_scale;
  return args;
}

}  // namespace

GradScaler::GradScaler(Context& context, const GradScalerOptions& options)
    : context_(context), args_(checked(options)) {
  load({.value = options.initial_scale,
        .good_steps = 0,
        .tolerance = args_.hysteresis,
        .skipped_steps = 0});
}

void GradScaler::update() {
  kernels::update_loss_scale(context_.exec(), args_);
}

}  // namespace shale::amp
