#include "shale/runtime/amp/precision.h"

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

struct Half : Module {
  Half(Module* parent, std::string half_name)
      : Module(parent, std::move(half_name)),
        norm(this, "norm", 8, 1e-5f),
        linear(this, "linear", 8, 8, Init::normal(0.5f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return linear.forward(norm.forward(in)); });
  }
  nn::LayerNorm norm;
  nn::Linear linear;
};

struct Net : Module {
  Net() : first(this, "first"), second(this, "second") {}
  Tensor forward(const Tensor& x) { return second.forward(first.forward(x)); }
  Half first, second;
};

DType dtype_of_weight(const Half& half) {
  return half.linear.weight.value.dtype();
}

}  // namespace

TEST_CASE("a module's precision holds for its subtree, and modules inside may differ") {
  Context context(small_context());
  Net net;
  net.first.set_precision({.compute = DType::kBF16, .output = DType::kF32});
  net.first.norm.set_precision({.compute = DType::kF32, .output = DType::kBF16});
  CHECK(net.precision() == nullptr);
  CHECK(net.first.linear.precision()->compute == DType::kBF16);
  materialize(net, context, DType::kF32, 1);
  CHECK(dtype_of_weight(net.first) == DType::kBF16);
  CHECK(net.first.norm.weight.value.dtype() == DType::kF32);
  CHECK(dtype_of_weight(net.second) == DType::kF32);
  const Tensor x = random_leaf(context, {3, 8}, 1);
  CHECK(net.first.norm.forward(cast(x, DType::kBF16)).dtype() == DType::kBF16);
  CHECK(net.first.linear.forward(cast(x, DType::kBF16)).dtype() == DType::kBF16);
  CHECK(net.first.forward(x).dtype() == DType::kF32);
  CHECK(net.forward(x).dtype() == DType::kF32);
}

TEST_CASE("a module with a precision computes what casts by hand compute, gradients included") {
  Context context(small_context());
  const auto gradients = [&](bool by_hand) {
    Net net;
    net.first.set_precision({.compute = DType::kBF16, .output = DType::kF32});
    materialize(net, context, DType::kF32, 1);
    const Tensor x = random_leaf(context, {3, 8}, 1);
    Tensor hidden;
    if (by_hand) {
      nn::LayerNorm& norm = net.first.norm;
      nn::Linear& layer = net.first.linear;
      hidden = layer_norm(cast(x, DType::kBF16), norm.weight.value, norm.bias.value, 1e-5f);
      hidden = cast(linear(hidden, layer.weight.value, layer.bias->value), DType::kF32);
    } else {
      hidden = net.first.forward(x);
    }
    const Tensor y = net.second.forward(hidden);
    backward(y, from_host<float>(context, randn<float>(24, 2), y.shape()));
    std::vector<std::vector<float>> all = {to_host<float>(x.grad())};
    for (const Parameter* parameter : net.parameters()) {
      all.push_back(to_host<float>(parameter->value.grad()));
    }
    return all;
  };
  CHECK(gradients(false) == gradients(true));
}

TEST_CASE("low-precision parameters have f32 masters, and gradients the reduction's dtype") {
  Context context(small_context());
  Net net;
  net.first.set_precision({.compute = DType::kF16, .reduce = DType::kBF16, .output = DType::kF32});
  materialize(net, context, DType::kF32, 1);
  optim::Sgd optimizer(local_shards(net, context), {.momentum = 0});
  for (const OptimShard& shard : optimizer.shards()) {
    CAPTURE(shard.name);
    const bool low = shard.name.starts_with("first.");
    CHECK(shard.master.dtype() == DType::kF32);
    CHECK(shard.compute.defined() == low);
    CHECK(shard.grad.dtype() == (low ? DType::kBF16 : DType::kF32));
  }
  const Parameter& bias = *net.first.linear.bias;  // the initial values are zeros
  const Tensor x = random_leaf(context, {3, 8}, 1);
  optimizer.prepare(context, 0, 0.5f);
  backward(sum(net.first.forward(x)));
  backward(sum(net.first.forward(x)));  // two backward passes add 3 + 3 in bf16
  optimizer.step();
  CHECK(to_host<float>(cast(bias.value.detach(), DType::kF32)) == std::vector<float>(8, -3.0f));
}

TEST_CASE("precisions that no kernel supports are errors") {
  Net net;
  const auto message = [&](const amp::Precision& precision) {
    return message_of<ConfigError>([&] { net.set_precision(precision); });
  };
  CHECK(
      contains(message({.compute = DType::kI32}), "compute is int32, expected fp32, bf16 or fp16"));
  CHECK(contains(message({.reduce = DType::kF16}), "reduce is fp16, expected fp32 or bf16"));
  CHECK(contains(message({.output = DType::kF64}), "output is"));
}

}  // namespace shale::test
