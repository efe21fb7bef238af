#include "shale/kernels/optim.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

Sgd::Sgd(std::vector<OptimShard> shards, const SgdOptions& options)
    : ElementwiseOptimizer(std::move(shards), options.weight_decay), options_(options) {
  if (options_.momentum != 0) add_states("momentum");
}

void Sgd::step_run(size_t index, const OptimRun& run, const View& compute) {
  const OptimShard& shard = shards()[index];
  kernels::sgd(exec(index), {.master = part(shard.master, run),
                             .grad = part(shard.grad, run),
                             .m = options_.momentum != 0 ? part(state(index, 0), run) : View{},
                             .param = compute,
                             .lr_factor = run.lr_factor,
                             .momentum = options_.momentum,
                             .weight_decay = run.weight_decay});
}

}  // namespace shale::optim
