#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/schedule.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

struct Net : Module {
  Net()
      : linear(this, "linear", 5, 3, Init::normal(0.5f)),
        unused(this, "unused", 2, 2, Init::ones()) {}
  nn::Linear linear;
  nn::Linear unused;
};

// A reference for AdamW in f64.
struct AdamWReference {
  double w, m = 0, v = 0;
  void step(double g, int t, double lr, double decay) {
    m = 0.9 * m + 0.1 * g;
    v = 0.95 * v + 0.05 * g * g;
    const double mh = m / (1 - std::pow(0.9, t)), vh = v / (1 - std::pow(0.95, t));
    w -= lr * (mh / (std::sqrt(vh) + 1e-8) + decay * w);
  }
};

}  // namespace

TEST_CASE("AdamW follows its f64 definition, with weight decay on matrices only") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Context context(small_context());
    Net net;
    materialize(net, context, dtype, 3);
    optim::AdamW optimizer(local_shards(net, context), {.weight_decay = 0.1f});
    const Tensor x = cast(full(context, {4, 5}, DType::kF32, 0.5), dtype);
    const OptimShard& weights = optimizer.shards()[0];
    const OptimShard& biases = optimizer.shards()[1];
    AdamWReference weight{to_host<float>(weights.master)[0]};
    AdamWReference bias{to_host<float>(biases.master)[0]};
    for (int t = 1; t <= 5; ++t) {
      optimizer.prepare(context, t - 1, 0.01f);
      backward(sum(cast(net.linear.forward(x), DType::kF32)));
      // The gradient of each weight is 2, the sum of x over the rows. That of each bias is 4, the
      // number of rows.
      optimizer.step();
      optimizer.zero_grad();
      weight.step(2, t, 0.01, 0.1);
      bias.step(4, t, 0.01, 0);
    }
    CAPTURE(dtype_name(dtype));
    // Allows about ten f32 roundings of values below 1 per step.
    CHECK(to_host<float>(weights.master)[0] == Approx(weight.w).margin(5e-6));
    CHECK(to_host<float>(biases.master)[0] == Approx(bias.w).margin(5e-6));
    if (dtype == DType::kBF16) {
      const float master = to_host<float>(weights.master)[7];
      CHECK(to_f32(to_host<bf16>(weights.compute)[7]) == to_f32(bf16(master)));
    }
  }
}

TEST_CASE("SGD follows its definition, and keeps no state without momentum") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  CHECK(optim::Sgd(local_shards(net, context), {.momentum = 0}).states().empty());
  optim::Sgd heavy(local_shards(net, context), {.momentum = 0.5f});
  const Tensor x = full(context, {4, 5}, DType::kF32, 0.5);
  const float start = to_host<float>(net.linear.bias->value)[0];
  for (int t = 0; t < 2; ++t) {
    heavy.prepare(context, t, 0.125f);
    backward(sum(net.linear.forward(x)));
    heavy.step();
    heavy.zero_grad();
  }
  // The gradient is 4, so the momentum is 4 and then 6. The two updates, 0.5 and 0.75, are exact in
  // f32.
  CHECK(start == 0);
  CHECK(to_host<float>(net.linear.bias->value)[0] == -1.25f);
}

TEST_CASE("a parameter without a gradient is stepped with gradient zero, not with an old one") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::Sgd optimizer(local_shards(net, context), {.momentum = 0});
  const Tensor x = full(context, {1, 2}, DType::kF32, 1);
  optimizer.prepare(context, 0, 1);
  backward(sum(net.unused.forward(x)));
  optimizer.step();
  optimizer.zero_grad();
  const std::vector<float> after = to_host<float>(net.unused.weight.value);
  CHECK(after[0] == 0);
  optimizer.prepare(context, 1, 1);
  backward(sum(net.linear.forward(full(context, {1, 5}, DType::kF32, 1))));
  optimizer.step();
  CHECK(to_host<float>(net.unused.weight.value) == after);
}

TEST_CASE("a step moves the version of the parameters it changes") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::Sgd optimizer(local_shards(net, context), {.momentum = 0});
  const Tensor loss = sum(mul(net.linear.forward(random_leaf(context, {2, 5}, 1)),
                              net.linear.forward(random_leaf(context, {2, 5}, 2))));
  optimizer.prepare(context, 0, 0.1f);
  optimizer.step();
  CHECK(contains(message_of<AutogradError>([&] { backward(loss); }), "changed in place"));
}

TEST_CASE("clipping measures the norm over all parameters and scales the step, not the gradient") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::Sgd optimizer(local_shards(net, context), {.momentum = 0});
  const Tensor x = full(context, {4, 5}, DType::kF32, 0.5);
  for (const float max_norm : {0.0f, 1.0f, 1000.0f}) {
    const float before = to_host<float>(net.linear.bias->value)[0];
    optimizer.prepare(context, 0, 0.125f);
    backward(sum(net.linear.forward(x)));
    optim::clip_grad_norm(context, optimizer.shards(), max_norm);
    // Gradients are 2 for 15 weights and 4 for 3 biases.
    const double norm = std::sqrt(15 * 4.0 + 3 * 16.0);
    const StepState state = context.read_step();
    CHECK(state.grad_norm == Approx(norm).epsilon(1e-6));
    const double factor = max_norm == 1 ? 1 / norm : 1;
    CHECK(state.clip_factor == Approx(factor).epsilon(1e-5));
    CHECK(to_host<float>(net.linear.bias->value.grad())[0] == 4);
    optimizer.step();
    optimizer.zero_grad();
    CHECK(to_host<float>(net.linear.bias->value)[0] ==
          Approx(before - 0.125 * 4 * factor).margin(1e-6));
  }
}

TEST_CASE("what clipping found survives a later change of the host's step values") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::Sgd optimizer(local_shards(net, context), {.momentum = 0});
  optimizer.prepare(context, 0, 0.1f);
  backward(sum(net.linear.forward(full(context, {4, 5}, DType::kF32, 0.5))));
  optim::clip_grad_norm(context, optimizer.shards(), 1);
  const StepState before = context.read_step();
  context.update_step([](StepState& state) { state.sample = 17; });
  const StepState after = context.read_step();
  CHECK(before.clip_factor < 1);
  CHECK(after.clip_factor == before.clip_factor);
  CHECK(after.grad_norm == before.grad_norm);
  CHECK(after.sample == 17);
}

TEST_CASE("a gradient that is not finite stops the step and is named") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::AdamW optimizer(local_shards(net, context), {});
  const std::vector<float> before = to_host<float>(net.linear.weight.value);
  optimizer.prepare(context, 0, 0.1f);
  backward(sum(net.linear.forward(full(context, {1, 5}, DType::kF32, INFINITY))));
  optim::clip_grad_norm(context, optimizer.shards(), 1);
  optimizer.step();
  CHECK(context.read_step().non_finite != 0);
  CHECK(same_bits(to_host<float>(net.linear.weight.value), before));
  CHECK(optim::first_non_finite(optimizer.shards()) == "linear.weight");
  optimizer.zero_grad();
  backward(sum(net.linear.forward(full(context, {1, 5}, DType::kF32, 1))));
  complete_gradients(optimizer.shards());
  CHECK(optim::first_non_finite(optimizer.shards()).empty());
}

TEST_CASE("optimizers of one context have rates and bias corrections of their own") {
  Context context(small_context());
  const auto moved = [&](bool both) {
    Net net, other;
    materialize(net, context, DType::kF32, 3);
    materialize(other, context, DType::kF32, 3);
    optim::AdamW one(local_shards(net, context), {}), two(local_shards(other, context), {});
    for (int step = 0; step < 2; ++step) {
      const Tensor x = full(context, {4, 5}, DType::kF32, 0.5);
      backward(sum(net.linear.forward(x)));
      backward(sum(other.linear.forward(x)));
      one.prepare(context, step, 0.125f);
      if (both) two.prepare(context, 100, 0.5f);
      optim::clip_grad_norm(context, one.shards(), 1);
      if (both) optim::clip_grad_norm(context, two.shards(), 1e-3f);
      one.step();
      if (both) two.step();
      one.zero_grad();
    }
    return to_host<float>(net.linear.weight.value);
  };
  CHECK(same_bits(moved(true), moved(false)));
}

TEST_CASE("a step without prepare() is an error, not a step of rate zero") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::AdamW optimizer(local_shards(net, context), {});
  CHECK(contains(message_of<InternalError>([&] { optimizer.step(); }), "prepare()"));
  CHECK(contains(message_of<InternalError>([&] { optimizer.set_updates(1); }), "prepare()"));
}

TEST_CASE("parameters are selected by patterns of their names; those that fit none are errors") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  std::vector<OptimShard> shards = local_shards(net, context);
  const auto names = [&](std::string_view pattern) {
    std::vector<std::string> found;
    for (const OptimShard& shard : select_parameters(shards, pattern)) found.push_back(shard.name);
    return found;
  };
  CHECK(names("*").size() == 4);
  CHECK(names("unused.bias") == std::vector<std::string>{"unused.bias"});
  CHECK(names("*.bias") == std::vector<std::string>{"linear.bias", "unused.bias"});
  CHECK(names("l*n*r.*t") == std::vector<std::string>{"linear.weight"});
  CHECK(names("*weight*").size() == 2);
  for (const char* none : {"", "linear", "*.weigh", "linear.weight.*?"}) {
    CAPTURE(none);
    CHECK(contains(message_of<ConfigError>([&] { select_parameters(shards, none); }),
                   "no parameter"));
    CHECK(contains(message_of<ConfigError>([&] { set_parameter_options(shards, none, {}); }),
                   cat('"', none, '"')));
  }
}

TEST_CASE("spans that are left out of a shard are not stepped, though they lie between others") {
  Context context(small_context());
  struct Three : Module {
    Three()
        : a(declare("a", {3}, Init::ones())),
          b(declare("b", {5}, Init::ones())),
          c(declare("c", {4}, Init::ones())) {}
    Parameter &a, &b, &c;
  } net;
  OptimShard shard{.name = "three",
                   .master = full(context, {3072}, DType::kF32, 1),
                   .grad = full(context, {3072}, DType::kF32, 1),
                   .spans = {}};
  int64_t offset = 0;
  for (Parameter* parameter : net.parameters()) {
    parameter->bind(context, shard.master.storage(), offset, DType::kF32);
    leaf_state(parameter->value).has_value = true;
    shard.spans.push_back(
        {.parameter = parameter, .first = 0, .offset = offset, .count = parameter->numel()});
    offset += 1024;
  }
  shard.gradient->parameters = 3;
  optim::Sgd optimizer(
      select_parameters({shard}, [&](const Parameter& parameter) { return &parameter != &net.b; }),
      {.momentum = 0});
  optimizer.prepare(context, 0, 0.5f);
  optim::clip_grad_norm(context, optimizer.shards(), 0);
  CHECK(context.read_step().grad_norm == Approx(std::sqrt(7.0)));
  optimizer.step();
  CHECK(to_host<float>(net.a.value) == std::vector<float>(3, 0.5f));
  CHECK(to_host<float>(net.b.value) == std::vector<float>(5, 1));
  CHECK(to_host<float>(net.c.value) == std::vector<float>(4, 0.5f));
}

TEST_CASE("schedules warm up, decay and end where they say") {
  optim::Schedule s{.lr = 1, .min_lr = 0.1, .warmup_steps = 10, .total_steps = 110};
  CHECK(s.at(0) == Approx(0.1));
  CHECK(s.at(9) == Approx(1));
  CHECK(s.at(10) == Approx(1));
  CHECK(s.at(60) == Approx(0.55));
  CHECK(s.at(110) == Approx(0.1));
  CHECK(s.at(1000) == Approx(0.1));
  s.decay = optim::Decay::kLinear;
  CHECK(s.at(35) == Approx(0.775));
  s.decay = optim::Decay::kConstant;
  CHECK(s.at(100) == 1);
  CHECK(optim::Schedule{.lr = 2, .min_lr = 1, .warmup_steps = 0, .total_steps = 0}.at(0) ==
        Approx(2));
}

TEST_CASE("a rate that goes to zero by a line has no smallest rate") {
  const optim::Schedule s{.decay = optim::Decay::kLinearToZero,
                          .lr = 2,
                          .min_lr = 1,
                          .warmup_steps = 10,
                          .total_steps = 110};
  CHECK(s.at(4) == Approx(1));
  CHECK(s.at(10) == Approx(2));
  CHECK(s.at(60) == Approx(1));
  CHECK(s.at(109) == Approx(0.02));
  CHECK(s.at(110) == 0);
}

TEST_CASE("warm-up, stable, decay: the rate stays until the last steps, and falls in two shapes") {
  optim::Schedule s{.decay = optim::Decay::kWsd,
                    .lr = 1,
                    .min_lr = 0.2,
                    .warmup_steps = 10,
                    .total_steps = 210,
                    .decay_steps = 100};
  CHECK(s.at(4) == Approx(0.5));
  for (const int64_t step : {10, 11, 60, 110}) CHECK(s.at(step) == 1);
  CHECK(s.at(135) == Approx(0.8));
  CHECK(s.at(209) == Approx(0.208));
  CHECK(s.at(210) == Approx(0.2));
  s.decay = optim::Decay::kWsdOneMinusSqrt;
  CHECK(s.at(110) == 1);
  CHECK(s.at(135) == Approx(0.6));  // 1 - 0.8 * sqrt(1/4)
  CHECK(s.at(210) == Approx(0.2));
  s.decay_steps = 0;
  CHECK(s.at(209) == 1);
}

TEST_CASE("the inverse square root goes on where warm-up ends, and knows no end") {
  optim::Schedule s{.decay = optim::Decay::kInverseSqrt, .lr = 3, .min_lr = 1, .warmup_steps = 100};
  CHECK(s.at(99) == Approx(3));
  CHECK(s.at(100) == Approx(3 * std::sqrt(100.0 / 101)));
  CHECK(s.at(399) == Approx(1.5));
  CHECK(s.at(999'999) == Approx(0.03));
  s.warmup_steps = 0;
  CHECK(s.at(0) == Approx(3));
  CHECK(s.at(3) == Approx(1.5));
}

TEST_CASE("a step needs a prepare() of its own") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  optim::AdamW optimizer(local_shards(net, context), {});
  optimizer.prepare(context, 0, 0.1f);
  optimizer.step();
  const std::string message = message_of<InternalError>([&] { optimizer.step(); });
  CHECK(contains(message, "a second step() after prepare() for step 0"));
  optimizer.prepare(context, 1, 0.1f);
  optimizer.step();
}

TEST_CASE("a model has memory and shards once") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  CHECK(contains(message_of<InternalError>([&] { materialize(net, context, DType::kF32, 3); }),
                 "linear.weight has memory already"));
  {
    const std::vector<OptimShard> shards = local_shards(net, context);
    const std::string message = message_of<InternalError>([&] { local_shards(net, context); });
    CHECK(contains(message, "the gradient of linear.weight is in use already"));
    CHECK(contains(message, "select_parameters"));
  }
  // The earlier shards no longer exist, so this is allowed.
  CHECK(local_shards(net, context).size() == 4);
}

TEST_CASE("whether a parameter is trained is decided before it has memory") {
  Context context(small_context());
  Net net;
  net.unused.weight.trainable = false;
  materialize(net, context, DType::kF32, 3);
  CHECK(net.linear.weight.value.requires_grad());
  CHECK_FALSE(net.unused.weight.value.requires_grad());
  CHECK(
      contains(message_of<AutogradError>([&] { net.linear.weight.value.set_requires_grad(false); }),
               "linear.weight is a parameter: set Parameter::trainable instead"));
  optim::AdamW optimizer(local_shards(net, context), {});
  net.linear.weight.trainable = false;
  CHECK(contains(message_of<ConfigError>([&] { optimizer.prepare(context, 0, 0.1f); }),
                 "Parameter::trainable is false now"));
}

TEST_CASE("a part that is frozen for some steps has an optimizer of its own, which rests") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 3);
  const std::vector<OptimShard> shards = local_shards(net, context);
  optim::AdamW weights(select_parameters(shards, "*.weight"), {});
  optim::AdamW biases(select_parameters(shards, "*.bias"), {});
  const Tensor x = full(context, {4, 5}, DType::kF32, 0.5);
  const std::vector<float> before = to_host<float>(net.linear.weight.value);
  const auto step = [&](int64_t number, std::vector<optim::Optimizer*> some) {
    for (optim::Optimizer* optimizer : some) optimizer->prepare(context, number, 0.1f);
    backward(sum(net.linear.forward(x)));
    for (optim::Optimizer* optimizer : some) optimizer->step();
    zero_grad(shards);
  };
  step(0, {&biases});
  CHECK(same_bits(to_host<float>(net.linear.weight.value), before));
  step(1, {&biases, &weights});
  CHECK_FALSE(same_bits(to_host<float>(net.linear.weight.value), before));
}

}  // namespace shale::test
