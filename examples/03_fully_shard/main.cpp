// A custom training loop over several ranks, with sharded parameters, gradients and optimizer
// states (ZeRO-3). The code below is the program in README.md.
//
// Run: fully_shard, or mpirun -np 4 --bind-to none fully_shard
#include <shale/shale.h>

#include "my_model.h"

int main(int argc, char** argv) {
  return shale::comm::run(argc, argv, [](shale::comm::World& world) {
    shale::Context context({.device = world.device()});
    const auto group = world.group({}, context.backend());
    MyModel model;  // a shale::Module, whose parameters have no memory yet
    for (shale::Module* block : model.blocks()) shale::comm::fully_shard(*block, context, *group);
    shale::comm::fully_shard(model, context, *group);  // the rest
    shale::optim::AdamW optimizer(shale::comm::optim_shards(model), {});

    MyData data(context, world.rank());
    for (int64_t step = 0; step < 100; ++step) {
      optimizer.prepare(context, step, /*lr=*/0.003f);
      const shale::Tensor loss = model.loss(data.batch(step));
      // Gradients are summed over ranks, so mean_over_ranks() scales the loss to get their mean.
      shale::backward(shale::comm::mean_over_ranks(model, loss));
      shale::comm::clip_grad_norm(model, 1);
      optimizer.step();
      optimizer.zero_grad();
      if (world.rank() == 0 && step % 20 == 19) print_loss(step, loss);
    }
    return 0;
  });
}
