#include "shale/kernels/optim.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

Sgd::Sgd(std::vector<OptimShard> shards, const SgdOptions& options)
    : ElementwiseOptimizer(std::move(shards)), options_(options) {
  if (options_.momentum != 0) add_states("momentum");
}

void Sgd::step_run(size_t index, const OptimRun& run, const View& compute) {
  const OptimShard& shard = shards()[index];
  kernels::sgd(shard.grad.exec(),
               {.master = part(shard.master, run),
                .grad = part(shard.grad, run),
                .m = options_.momentum != 0 ? part(state(index, 0), run) : View{},
                .param = compute,
                .momentum = options_.momentum,
                .weight_decay = run.decay ? options_.weight_decay : 0});
}

}  // namespace shale::optim
