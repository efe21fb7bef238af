#include "shale/kernels/dynamic_map.h"
#include "shale/kernels/optim.h"
#include "shale/runtime/optim/moments.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

AdamW::AdamW(std::vector<OptimShard> shards, const AdamWOptions& options)
    : ElementwiseOptimizer(std::move(shards), options.weight_decay), options_(options) {
  if (options.moments == Moments::kInt8) {
    // All codes of m start as the code of zero. A resumed run writes only the codes of elements;
    // the codes of padding in the same block must still mean zero when the block gets a scale.
    add_states("m", DType::kU8, 1, kernels::kSignedMap.zero);
    add_states("v", DType::kU8);
    add_states("m_scale", DType::kF32, kernels::kMomentBlock);
    add_states("v_scale", DType::kF32, kernels::kMomentBlock);
    return;
  }
  add_states("m", moment_dtype("adamw", "beta1", options.beta1, options.moments));
  add_states("v", moment_dtype("adamw", "beta2", options.beta2, options.moments));
}

void AdamW::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.beta1, done + 1);
  values.bias_correction2 = correction(options_.beta2, done + 1);
}

void AdamW::step_run(size_t index, const OptimRun& run, const View& compute) {
  if (options_.moments == Moments::kInt8) return step_run_8bit(index, run, compute);
  const OptimShard& shard = shards()[index];
  kernels::adamw(exec(index), {.master = part(shard.master, run),
                               .grad = part(shard.grad, run),
                               .m = part(state(index, 0), run),
                               .v = part(state(index, 1), run),
                               .param = compute,
                               .lr_factor = run.lr_factor,
                               .beta1 = options_.beta1,
                               .beta2 = options_.beta2,
                               .eps = options_.eps,
                               .weight_decay = run.weight_decay});
}

void AdamW::step_run_8bit(size_t index, const OptimRun& run, const View& compute) {
  const OptimShard& shard = shards()[index];
  kernels::adamw_8bit(exec(index), {.master = part(shard.master, run),
                                    .grad = part(shard.grad, run),
                                    .m = part(state(index, 0), run),
                                    .v = part(state(index, 1), run),
                                    .m_scale = part(state(index, 2), run, kernels::kMomentBlock),
                                    .v_scale = part(state(index, 3), run, kernels::kMomentBlock),
                                    .param = compute,
                                    .lr_factor = run.lr_factor,
                                    .beta1 = options_.beta1,
                                    .beta2 = options_.beta2,
                                    .eps = options_.eps,
                                    .weight_decay = run.weight_decay});
}

}  // namespace shale::optim
