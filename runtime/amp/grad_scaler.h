#pragma once

#include "shale/kernels/loss_scale.h"
#include "shale/runtime/tensor/context.h"

namespace shale::amp {

// Options of GradScaler. Defaults are PyTorch's; hysteresis is Megatron-LM's.
struct GradScalerOptions {
  float initial_scale = 65536;
  float growth_factor = 2;
  float backoff_factor = 0.5f;
  int64_t growth_interval = 2000;  // consecutive steps without overflow before the scale grows
  int64_t hysteresis = 1;          // overflows before the scale falls
  float min_scale = 1;
};

// Dynamic loss scaling for float16, whose small gradients would underflow (arXiv:1710.03740,
// section 3.2). The scale is in StepState on the device. backward(loss) starts with it for any
// loss; clip_grad_norm() divides it out and checks whether the gradient is finite; optimizers skip
// the step if it is not; update() adjusts the scale. None of this makes the host wait.
//
// Ranks agree without communication, because the result of clip_grad_norm() is equal on all of
// them.
//
//   backward(loss);
//   clip_grad_norm(...);  // must run, even with max_norm 0
//   optimizer.step();
//   scaler.update();
class GradScaler {
 public:
  // Sets the context's loss scale. Throws ConfigError for invalid options.
  GradScaler(Context& context, const GradScalerOptions& options);

  // Adjusts the scale; call it after clip_grad_norm(). See kernels/loss_scale.h.
  void update();

  // Returns the state that a checkpoint must keep to resume. Waits for the device.
  LossScale state() const { return context_.read_step().loss_scale; }
  void load(const LossScale& state) { context_.set_loss_scale(state); }

 private:
  Context& context_;
  kernels::LossScaleArgs args_;
};

}  // namespace shale::amp
