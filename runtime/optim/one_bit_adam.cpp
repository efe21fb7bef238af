#include "shale/runtime/optim/one_bit_adam.h"

#include <utility>

#include "shale/kernels/elementwise.h"
#include "shale/kernels/optim.h"

namespace shale::optim {
namespace {

// Of states(), as they are added.
enum State : size_t { kM, kV };

}  // namespace

OneBitAdam::OneBitAdam(std::vector<OptimShard> shards, const OneBitAdamOptions& options)
    : OneBitOptimizer("1bit-adam", std::move(shards), options.weight_decay, options.freeze_step),
      options_(options) {
  add_states("m");
  add_states("v");
  add_error_states();
}

void OneBitAdam::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.beta1, done + 1);
  values.bias_correction2 = is_frozen() ? 1 : correction(options_.beta2, done + 1);
}

// Once, whether the first step after the freeze is skipped or not: the moments that stay are those
// of the updates done before.
void OneBitAdam::correct_second_moments() {
  check_frozen();
  const float scale = 1 / correction(options_.beta2, updates_done());
  for (const Tensor& v : states_of(kV)) {
    kernels::axpby(v.exec(), {.a = v, .y = v, .alpha = scale});
  }
}

void OneBitAdam::begin_step() {
  if (!is_frozen() || shards().empty()) return;
  if (is_first_frozen()) correct_second_moments();
  average(states_of(kM), kV, options_.beta1, 1.f - options_.beta1);
}

void OneBitAdam::step_run(size_t index, const OptimRun& run, const View& compute) {
  const OptimShard& shard = shards()[index];
  const View m = part(state(index, kM), run);
  // With rates of 1 the moments stay; what stands for the gradient then is only to be finite.
  kernels::adamw(exec(index), {.master = part(shard.master, run),
                               .grad = is_frozen() ? m : part(shard.grad, run),
                               .m = m,
                               .v = part(state(index, kV), run),
                               .param = compute,
                               .lr_factor = run.lr_factor,
                               .beta1 = is_frozen() ? 1 : options_.beta1,
                               .beta2 = is_frozen() ? 1 : options_.beta2,
                               .eps = options_.eps,
                               .weight_decay = run.weight_decay});
}

}  // namespace shale::optim
