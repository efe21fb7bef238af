// Trains the model of examples/c/main.c through the C++ interface; losses are bit-identical. Run:
// twin [STAGE]
#include <shale/shale.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using shale::Tensor;

constexpr int64_t kWidth = 16, kPoints = 64, kSteps = 60;

struct Model : shale::Module {
  Model()
      : w1(declare("w1", {kWidth, 2}, shale::Init::normal(1))),
        b1(declare("b1", {kWidth}, shale::Init::zeros(), /*decay=*/false)),
        w2(declare("w2", {1, kWidth}, shale::Init::normal(0.2f))),
        b2(declare("b2", {1}, shale::Init::zeros(), /*decay=*/false)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      return linear(gelu(linear(in, w1.value, b1.value)), w2.value, b2.value);
    });
  }
  shale::Parameter &w1, &b1, &w2, &b2;
};

int train(shale::comm::World& world, int stage) {
  shale::Context context({.device = world.device()});
  const auto group = world.group({}, context.backend());
  Model model;
  shale::comm::fully_shard(model, context, *group, {.stage = stage, .seed = 7});
  shale::optim::AdamW optimizer(shale::comm::optim_shards(model), {.weight_decay = 0});
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<float> points, wanted;
    for (int i = 0; i < kPoints; ++i) {
      const int64_t place = (step * world.size() + world.rank()) * kPoints + i;
      const float radius = place % 2 == 0 ? 0.5f : 1.0f, angle = 0.1f * float(place % 1000);
      points.push_back(radius * std::cos(angle));
      points.push_back(radius * std::sin(angle));
      wanted.push_back(place % 2 == 0 ? 1.0f : -1.0f);
    }
    optimizer.prepare(context, step, 0.02f);
    const Tensor y = model.forward(shale::from_host<float>(context, points, {kPoints, 2}));
    const Tensor loss = mse_loss(y, shale::from_host<float>(context, wanted, {kPoints, 1}));
    backward(shale::comm::mean_over_ranks(model, loss, kPoints));
    shale::comm::clip_grad_norm(model, 1);
    optimizer.step();
    optimizer.zero_grad();
    double sum = double(to_host<float>(loss).front());
    group->host().all_reduce_sum(shale::make_view(&sum, {1}), {.tag = "loss"});
    if (world.rank() == 0) {
      std::printf("step %d | loss %.9g\n", int(step + 1), double(float(sum / world.size())));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int stage = argc > 1 ? std::atoi(argv[1]) : 0;
  return shale::comm::run(argc, argv,
                          [stage](shale::comm::World& world) { return train(world, stage); });
}
