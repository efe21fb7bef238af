#pragma once

#include "shale/kernels/loss_scale.h"
#include "shale/runtime/tensor/context.h"

namespace shale::amp {

// Defaults are those of PyTorch's GradScaler; hysteresis is Megatron-LM's.
struct GradScalerOptions {
  float initial_scale = 65536;
  float growth_factor = 2;
  float backoff_factor = 0.5f;
  int64_t growth_interval = 2000;  // steps without overflow until the scale grows
  int64_t hysteresis = 1;          // overflows until it falls
  float min_scale = 1;
};

// Dynamic loss scaling for float16, whose smallest gradients would vanish (arXiv:1710.03740,
// section 3.2). The scale lives in StepState on the device: backward(loss) begins with it, for any
// loss, clip_grad_norm() divides it out again and finds out whether the gradient is finite,
// optimizers skip the step if not, update() moves the scale on. The host waits for none of this.
//
// Ranks agree without talking: what clip_grad_norm() looks at is the same on all of them.
//
//   backward(loss);
//   clip_grad_norm(...);  // must run, even with max_norm 0
//   optimizer.step();
//   scaler.update();
class GradScaler {
 public:
  // Sets the context's scale. Throws ConfigError for options that make no sense.
  GradScaler(Context& context, const GradScalerOptions& options);

  // After clip_grad_norm(): see kernels/loss_scale.h.
  void update();

  // For checkpoints: all that a resumed run needs. state() waits for the device.
  LossScale state() const { return context_.read_step().loss_scale; }
  void load(const LossScale& state) { context_.set_loss_scale(state); }

 private:
  Context& context_;
  kernels::LossScaleArgs args_;
};

}  // namespace shale::amp
