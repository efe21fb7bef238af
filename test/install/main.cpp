// A research program that uses the installed package: its own model with its own training loop.
// Works with and without mpirun.
#include <shale/autograd.h>
#include <shale/comm.h>
#include <shale/nn.h>
#include <shale/ops.h>
#include <shale/optim.h>
#include <shale/parallel.h>

#include <cstdio>
#include <vector>

namespace {

using shale::Tensor;

// y = second(gelu(first(x)))
struct Mlp : shale::Module {
  Mlp()
      : first(this, "first", 2, 16, shale::Init::normal(0.5f)),
        second(this, "second", 16, 1, shale::Init::normal(0.5f)) {}
  Tensor forward(const Tensor& x) { return second.forward(gelu(first.forward(x))); }
  shale::nn::Linear first, second;
};

int train(shale::comm::World& world) {
  const auto group = world.group();
  shale::Context context({.threads = 1});
  Mlp model;
  shale::comm::DataParallel parallel(model, {&model.first, &model.second}, context, *group, {});
  shale::optim::AdamW optimizer(parallel.shards(), {.weight_decay = 0});

  // The data is XOR, which no linear model can learn.
  const std::vector<float> points = {0, 0, 0, 1, 1, 0, 1, 1}, wanted = {0, -1, -1, 0};
  const Tensor x = shale::from_host<float>(context, points, {4, 2});
  const Tensor minus_y = shale::from_host<float>(context, wanted, {4, 1});
  float first_loss = 0, loss = 0;
  for (int step = 0; step < 300; ++step) {
    optimizer.prepare(context, step, 0.02f);
    const Tensor error = add(model.forward(x), minus_y);
    const Tensor squared = mean(mul(error, error));
    parallel.begin_backward(/*last=*/true);
    backward(squared);
    parallel.finish_gradients();
    parallel.clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
    loss = shale::to_host<float>(squared).front();
    if (step == 0) first_loss = loss;
  }
  if (world.rank() == 0) std::printf("loss %.4f -> %.6f\n", double(first_loss), double(loss));
  return loss < 0.01f ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return shale::comm::run(argc, argv, train);
}
