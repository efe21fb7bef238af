#include "shale/kernels/optim.h"
#include "shale/runtime/optim/moments.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

Lion::Lion(std::vector<OptimShard> shards, const LionOptions& options)
    : ElementwiseOptimizer(std::move(shards), options.weight_decay), options_(options) {
  add_states("m", moment_dtype("lion", "beta2", options.beta2, options.moments));
}

void Lion::step_run(size_t index, const OptimRun& run, const View& compute) {
  const OptimShard& shard = shards()[index];
  kernels::lion(exec(index), {.master = part(shard.master, run),
                              .grad = part(shard.grad, run),
                              .m = part(state(index, 0), run),
                              .param = compute,
                              .lr_factor = run.lr_factor,
                              .beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .weight_decay = run.weight_decay});
}

}  // namespace shale::optim
