// Dtypes of single layers, and which parameters ZeRO-3 gathers ahead of their use.
//
// Run: prefetch_and_precision, or mpirun -np 3 --bind-to none prefetch_and_precision
#include <shale/shale.h>

#include <cstdint>
#include <vector>

#include "../03_fully_shard/my_model.h"

namespace {

using shale::DType;

// Sets dtypes; called before parameters have memory. Blocks compute in bf16 and return f32, and
// their norms stay in f32.
void set_precision(MyModel& model) {
  for (shale::Module* block : model.blocks()) {
    block->set_precision({.compute = DType::kBF16, .output = DType::kF32});
    static_cast<MyBlock*>(block)->norm.set_precision(
        {.compute = DType::kF32, .output = DType::kBF16});
  }
}

// Gathers two blocks ahead, in both directions. Without these lists ZeRO-3 gathers one unit ahead,
// in the order of the first step.
void set_prefetch(shale::comm::FlatUnit& root, const std::vector<shale::comm::FlatUnit*>& blocks) {
  root.forward_prefetch = {blocks[0], blocks[1]};
  blocks[0]->forward_prefetch = {blocks[2]};
  blocks[2]->backward_prefetch = {blocks[1], blocks[0]};
}

int train(shale::comm::World& world) {
  shale::Context context({.device = world.device()});
  const auto group = world.group({}, context.backend());
  MyModel model;
  set_precision(model);
  // With prefetch = 0, units gather ahead only those in their lists.
  const shale::comm::DataParallelOptions options{.stage = 3, .prefetch = 0};
  std::vector<shale::comm::FlatUnit*> blocks;
  for (shale::Module* block : model.blocks()) {
    blocks.push_back(&shale::comm::fully_shard(*block, context, *group, options));
  }
  set_prefetch(shale::comm::fully_shard(model, context, *group, options), blocks);
  shale::optim::AdamW optimizer(shale::comm::optim_shards(model), {});

  MyData data(context, world.rank());
  float first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    optimizer.prepare(context, step, /*lr=*/0.003f);
    const shale::Tensor loss = model.loss(data.batch(step));
    backward(shale::comm::mean_over_ranks(model, loss));
    optimizer.step();
    optimizer.zero_grad();
    last = to_host<float>(loss).front();
    if (step == 0) first = last;
    if (world.rank() == 0 && step % 20 == 19) print_loss(step, loss);
  }
  return last < first ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return shale::comm::run(argc, argv, train);
}
