#include "shale/models/training/make_optimizer.h"

#include <functional>

#include "shale/base/error.h"
#include "shale/models/training/parameter_groups.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/adafactor.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using models::OptimizerKind;
using models::RunConfig;
using optim::AdafactorOptions;
using optim::AdamWOptions;
using optim::LionOptions;
using optim::Moments;
using Shards = std::vector<OptimShard>;
using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(Shards shards)>;

struct Net : Module {
  Net() : a(this, "a", 5, 3, Init::normal(0.5f)), b(this, "b", 3, 4, Init::normal(0.5f)) {}
  nn::Linear a, b;
};

// Returns the parameters after three steps.
std::vector<float> trained(const MakeOptimizer& make) {
  Context context(small_context(1));
  Net net;
  materialize(net, context, DType::kF32, 3);
  const auto optimizer = make(local_shards(net, context));
  for (int step = 0; step < 3; ++step) {
    optimizer->prepare(context, step, 0.01f);
    const auto x = from_host<float>(context, randn<float>(10, uint64_t(step)), {2, 5});
    backward(sum(net.b.forward(net.a.forward(x))));
    optimizer->step();
    optimizer->zero_grad();
  }
  std::vector<float> all;
  for (const Parameter* parameter : net.parameters()) {
    const std::vector<float> values = to_host<float>(parameter->value);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> by_flags(RunConfig config) {
  resolve_optimizer(config);
  return trained([&](Shards shards) { return make_optimizer(config, {}, std::move(shards)); });
}

template <typename T, typename Options>
std::vector<float> by_hand(const Options& options) {
  return trained([&](Shards shards) { return std::make_unique<T>(std::move(shards), options); });
}

std::string refusal(RunConfig config) {
  return message_of<ConfigError>([&] { resolve_optimizer(config); });
}

std::string group_refusal(std::string_view text) {
  return message_of<ConfigError>([&] { models::parse_parameter_groups(text); });
}

}  // namespace

TEST_CASE("betas, eps and decay of the flags are those of the optimizer") {
  CHECK(by_flags({}) == by_hand<optim::AdamW>(AdamWOptions{}));
  const RunConfig adamw{.beta1 = 0.8, .beta2 = 0.7, .eps = 1e-3, .weight_decay = 0.3};
  const AdamWOptions same{.beta1 = 0.8f, .beta2 = 0.7f, .eps = 1e-3f, .weight_decay = 0.3f};
  CHECK(by_flags(adamw) == by_hand<optim::AdamW>(same));
  CHECK(by_flags(adamw) != by_flags({}));
  RunConfig bf16 = adamw;
  bf16.optimizer = OptimizerKind::kAdamWBF16;
  AdamWOptions same_bf16 = same;
  same_bf16.moments = Moments::kBF16;
  CHECK(by_flags(bf16) == by_hand<optim::AdamW>(same_bf16));
  CHECK(by_flags({.optimizer = OptimizerKind::kLion}) == by_hand<optim::Lion>(LionOptions{}));
  CHECK(by_flags({.optimizer = OptimizerKind::kLion, .beta1 = 0.5, .beta2 = 0.6}) ==
        by_hand<optim::Lion>(LionOptions{.beta1 = 0.5f, .beta2 = 0.6f}));
  CHECK(by_flags({.optimizer = OptimizerKind::kAdafactor, .eps = 1e-4}) ==
        by_hand<optim::Adafactor>(AdafactorOptions{.eps = 1e-4f, .weight_decay = 0.1f}));
}

TEST_CASE("what is derived of an optimizer is written as people would, and stays") {
  RunConfig config;
  resolve_optimizer(config);
  CHECK(config.beta1 == 0.9);
  CHECK(config.beta2 == 0.95);
  CHECK(config.eps == 1e-8);
  resolve_optimizer(config);
  CHECK(config.beta2 == 0.95);
}

TEST_CASE("rates that an optimizer has not are refused") {
  CHECK(contains(refusal({.optimizer = OptimizerKind::kSgd, .beta1 = 0.9}), "--beta1 is 0.9"));
  CHECK(contains(refusal({.optimizer = OptimizerKind::kAdafactor, .beta2 = 0}), "--beta2 is 0"));
  CHECK(contains(refusal({.optimizer = OptimizerKind::kLion, .eps = 1}), "--eps is 1"));
}

TEST_CASE("parameters of a group have its rate and decay, the last group's that they are in") {
  const auto grouped = [](std::string_view groups) {
    return by_flags({.param_groups = std::string(groups)});
  };
  const auto by_options = [](const std::function<void(Shards&)>& set) {
    return trained([&](Shards shards) {
      set(shards);
      return std::make_unique<optim::AdamW>(std::move(shards), AdamWOptions{});
    });
  };
  const auto wanted = by_options([](Shards& shards) {
    set_parameter_options(shards, "a.*", {.lr_factor = 0.5f});
    set_parameter_options(shards, "*.bias", {.weight_decay = 0.25f});
  });
  CHECK(grouped("a.*:lr=0.5;*.bias:decay=0.25") == wanted);
  CHECK(grouped("a.*:lr=0.5;*.bias:decay=0.25;") == wanted);
  CHECK(grouped("*.bias:decay=0.25;a.*:lr=0.5") != wanted);
  CHECK(grouped("") == by_flags({}));
  CHECK(contains(message_of<ConfigError>([&] { grouped("c.*:lr=2"); }), "name matches \"c.*\""));
}

TEST_CASE("a group is a pattern and settings, each once and a number from 0 up") {
  const auto groups = models::parse_parameter_groups("wte.*:decay=0,lr=0.25;*:lr=2");
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].pattern == "wte.*");
  CHECK(groups[0].options.lr_factor == 0.25f);
  CHECK(groups[0].options.weight_decay == 0.f);
  CHECK(groups[1].options.lr_factor == 2);
  CHECK_FALSE(groups[1].options.weight_decay.has_value());
  CHECK(contains(group_refusal("wte.*"), "--param-groups: \"wte.*\", expected \"PATTERN:"));
  CHECK(contains(group_refusal(":lr=1"), "\":lr=1\""));
  CHECK(contains(group_refusal("a:"), "\"a:\""));
  CHECK(contains(group_refusal("a:rate=1"), "lr or decay, not \"rate\""));
  CHECK(contains(group_refusal("a:lr"), "a number from 0 up for lr"));
  CHECK(contains(group_refusal("a:lr=fast"), "a number from 0 up for lr"));
  CHECK(contains(group_refusal("a:lr=1;b:decay=-1"), "\"b:decay=-1\", expected a number"));
  CHECK(contains(group_refusal("a:lr=nan"), "a number from 0 up for lr"));
  CHECK(contains(group_refusal("a:lr=1e300"), "a number from 0 up for lr"));
  CHECK(contains(group_refusal("a:lr=1,lr=2"), "one lr"));
  CHECK(contains(group_refusal(";a:lr=1"), "PATTERN"));
}

}  // namespace shale::test
