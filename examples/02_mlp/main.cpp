// A custom model with a custom training loop on one device: it learns to distinguish points of two
// rings.
//
// Run: mlp
#include <shale/shale.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using shale::Tensor;

constexpr int64_t kPoints = 128;

// y = third(gelu(second(gelu(first(x))))). x: [n, 2], y: [n, 1].
struct Mlp : shale::Module {
  explicit Mlp(int64_t width)
      : first(this, "first", 2, width, shale::Init::normal(1)),
        second(this, "second", width, width, shale::Init::normal(0.2f)),
        third(this, "third", width, 1, shale::Init::normal(0.2f)) {}

  Tensor forward(const Tensor& x) {
    return third.forward(gelu(second.forward(gelu(first.forward(x)))));
  }

  shale::nn::Linear first, second, third;
};

struct Data {
  std::vector<float> points;  // [kPoints, 2]
  std::vector<float> wanted;  // [kPoints, 1]: 1 for the inner ring, -1 for the outer one
};

Data two_rings() {
  Data data;
  for (int64_t i = 0; i < kPoints; ++i) {
    const bool inner = i % 2 == 0;
    const float radius = inner ? 0.5f : 1.0f, angle = 0.1f * float(i);
    data.points.push_back(radius * std::cos(angle));
    data.points.push_back(radius * std::sin(angle));
    data.wanted.push_back(inner ? 1.0f : -1.0f);
  }
  return data;
}

float train() {
  shale::Context context({.threads = 1});
  Mlp model(16);
  materialize(model, context, shale::DType::kF32, /*seed=*/7);
  const auto shards = local_shards(model, context);
  shale::optim::AdamW optimizer(shards, {.weight_decay = 0});
  const shale::optim::Schedule schedule{
      .lr = 0.02, .min_lr = 0.002, .warmup_steps = 10, .total_steps = 300};

  const Data data = two_rings();
  const Tensor x = shale::from_host<float>(context, data.points, {kPoints, 2});
  const Tensor wanted = shale::from_host<float>(context, data.wanted, {kPoints, 1});
  float loss = 0;
  for (int64_t step = 0; step < schedule.total_steps; ++step) {
    // Must be called first in a step: sets the values of the step and resets gradient clipping.
    optimizer.prepare(context, step, static_cast<float>(schedule.at(step)));
    const Tensor error = model.forward(x) - wanted;
    const Tensor squared = mean(error * error);
    backward(squared);
    shale::optim::clip_grad_norm(context, shards, 1);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 50 == 0 || step + 1 == schedule.total_steps) {
      loss = to_host<float>(squared).front();
      std::printf("step %3d | loss %.5f\n", int(step), double(loss));
    }
  }
  return loss;
}

}  // namespace

int main() {
  try {
    return train() < 0.05f ? 0 : 1;
  } catch (const shale::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
