#include "shale/runtime/nn/module.h"

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

struct Inner : Module {
  Inner(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)),
        linear(this, "linear", 3, 3, Init::normal(0.5f)),
        norm(this, "norm", 3, 1e-5f) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return norm.forward(linear.forward(in)); });
  }
  nn::Linear linear;
  nn::LayerNorm norm;
};

struct Net : Module {
  Net()
      : first(this, "first"), second(this, "second"), scale(declare("scale", {3}, Init::ones())) {}
  Tensor forward(const Tensor& x) { return second.forward(first.forward(x)); }
  Inner first;
  Inner second;
  Parameter& scale;
};

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> all;
  for (const Parameter* parameter : module.parameters()) all.push_back(parameter->full_name());
  return all;
}

}  // namespace

TEST_CASE("parameters have full names, in order of declaration") {
  const Net net;
  CHECK(names(net) == std::vector<std::string>{"scale", "first.linear.weight", "first.linear.bias",
                                               "first.norm.weight", "first.norm.bias",
                                               "second.linear.weight", "second.linear.bias",
                                               "second.norm.weight", "second.norm.bias"});
  CHECK(net.find_parameter("second.norm.bias") == &net.second.norm.bias);
  CHECK(net.find_parameter("second.norm") == nullptr);
  CHECK(net.first.linear.weight.decay);
  CHECK_FALSE(net.first.linear.bias->decay);
  CHECK_FALSE(net.first.norm.weight.decay);
}

TEST_CASE("names that are taken are errors") {
  struct Twice : Module {
    Twice() {
      declare("a", {1}, Init::zeros());
      declare("a", {1}, Init::zeros());
    }
  };
  CHECK(contains(message_of<InternalError>([] { Twice(); }), "a twice"));
  Module root;
  const Module child(&root, "x");
  CHECK(contains(message_of<InternalError>([&] { Module(&root, "x"); }), "two children x"));
}

TEST_CASE("a parameter has no memory until its module is materialised") {
  Context context(small_context());
  Net net;
  const Tensor x = zeros(context, {2, 3}, DType::kF32);
  CHECK(contains(message_of<InternalError>([&] { net.forward(x); }), "first.linear.weight"));
  CHECK(context.allocator().stats().current[size_t(MemoryTag::kParameter)] == 0);
  materialize(net, context, DType::kF32, 1);
  CHECK(net.forward(x).shape() == Shape{2, 3});
}

TEST_CASE("nothing of a module that does not run is recomputed: an error, not silence") {
  Module root;
  nn::FeedForward mlp(&root, "mlp", {.width = 4, .hidden = 8});
  CHECK(contains(message_of<ConfigError>([&] { mlp.up.set_recompute(Recompute::kFull); }),
                 "mlp.c_fc has no forward of its own; use a module that contains it: mlp"));
}

TEST_CASE("initial values are a function of seed, name and element") {
  Context context(small_context());
  Net a, b, c;
  materialize(a, context, DType::kF32, 1);
  materialize(b, context, DType::kF32, 1);
  materialize(c, context, DType::kF32, 2);
  const auto values = [](const Parameter& p) { return to_host<float>(p.value); };
  CHECK(same_bits(values(a.first.linear.weight), values(b.first.linear.weight)));
  CHECK_FALSE(same_bits(values(a.first.linear.weight), values(c.first.linear.weight)));
  CHECK_FALSE(same_bits(values(a.first.linear.weight), values(a.second.linear.weight)));
  CHECK(values(a.first.norm.weight) == std::vector<float>{1, 1, 1});
  CHECK(values(*a.first.linear.bias) == std::vector<float>{0, 0, 0});
  // Filling a range of a parameter gives the values of the whole parameter's fill.
  const Tensor part = zeros(context, {5}, DType::kF32);
  a.first.linear.weight.write_initial(context.exec(), 1, 3, part);
  const std::vector<float> whole = values(a.first.linear.weight);
  CHECK(same_bits(to_host<float>(part), std::vector<float>(whole.begin() + 3, whole.begin() + 8)));
}

TEST_CASE("hooks of a module run around its forward and its backward") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 1);
  std::vector<std::string> log;
  const std::pair<HookPoint, const char*> points[] = {{HookPoint::kBeforeForward, "forward"},
                                                      {HookPoint::kAfterForward, "forwarded"},
                                                      {HookPoint::kBeforeBackward, "backward"},
                                                      {HookPoint::kAfterBackward, "backwarded"}};
  for (Inner* module : {&net.first, &net.second}) {
    for (const auto& [point, label] : points) {
      const std::string entry = cat(module->name(), " ", label);
      module->add_hook(point, [&log, entry] { log.push_back(entry); });
    }
  }
  const Tensor x = random_leaf(context, {2, 3}, 1);
  backward(sum(net.forward(x)));
  CHECK(log == std::vector<std::string>{"first forward", "first forwarded", "second forward",
                                        "second forwarded", "second backward", "second backwarded",
                                        "first backward", "first backwarded"});
}

TEST_CASE("the last backward hook comes after all uses of a module in one graph") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 1);
  std::vector<std::string> log;
  net.first.add_hook(HookPoint::kAfterBackward, [&] { log.push_back("use"); });
  net.first.add_hook(HookPoint::kAfterLastBackward, [&] { log.push_back("last"); });
  const Tensor x = random_leaf(context, {2, 3}, 1);
  const auto twice = [&] { return sum(net.first.forward(net.first.forward(x))); };
  const Tensor a = twice(), b = twice();  // makes two graphs before the first backward
  const Tensor dropped = net.first.forward(x);
  backward(a);
  CHECK(log == std::vector<std::string>{"use", "use", "last"});
  backward(b);
  CHECK(log == std::vector<std::string>{"use", "use", "last", "use", "use", "last"});
  log.clear();
  // The input has no gradient, so backward does not reach the end of the first use, and no hook is
  // called for it.
  backward(sum(net.first.forward(net.first.forward(x.detach()))));
  CHECK(log == std::vector<std::string>{"use"});
  backward(twice());
  CHECK(log == std::vector<std::string>{"use", "use", "use", "last"});
}

TEST_CASE("a body that throws is followed by the hooks after forward, from the inside out") {
  Context context(small_context());
  Net net;
  std::vector<std::string> log;
  for (Module* module : {static_cast<Module*>(&net), static_cast<Module*>(&net.first)}) {
    module->add_hook(HookPoint::kBeforeForward, [&log, module] { log.push_back(module->name()); });
    module->add_hook(HookPoint::kAfterForward,
                     [&log, module] { log.push_back(module->name() + " done"); });
  }
  const Tensor x = zeros(context, {2, 3}, DType::kF32);
  // Without memory for the parameters, forward fails.
  CHECK_FALSE(message_of<InternalError>([&] { net.forward(x); }).empty());
  REQUIRE_FALSE(log.empty());
  CHECK(log.back() == (log.front().empty() ? " done" : "first done"));
  CHECK(log.size() % 2 == 0);
}

TEST_CASE("a result that nothing else holds can be changed in place, with hooks or without") {
  Context context(small_context());
  const auto gradient = [&](bool hooked, bool held) {
    struct Holder : Module {
      Holder() : linear(this, "linear", 3, 3, Init::normal(1)) {}
      Tensor forward(const Tensor& x, bool hold) {
        return run(x, [this, hold](const Tensor& in) {
          Tensor y = linear.forward(in);
          if (hold) kept = y;
          return y;
        });
      }
      nn::Linear linear;
      Tensor kept;
    } net;
    materialize(net, context, DType::kF32, 1);
    if (hooked) net.add_hook(HookPoint::kBeforeBackward, [] {});
    Tensor y = net.forward(random_leaf(context, {2, 3}, 1), held);
    scale_(y, 3);
    backward(sum(mul(y, random_leaf(context, {2, 3}, 2))));
    return to_host<float>(net.linear.weight.value.grad());
  };
  CHECK(same_bits(gradient(true, false), gradient(false, false)));
  CHECK(contains(message_of<AutogradError>([&] { gradient(true, true); }), "is a view"));
}

TEST_CASE("hooks change no bit of the gradients") {
  Context context(small_context());
  const auto gradient = [&](bool hooked) {
    Net net;
    materialize(net, context, DType::kF32, 1);
    if (hooked) {
      for (const HookPoint point : {HookPoint::kBeforeBackward, HookPoint::kAfterBackward}) {
        net.first.add_hook(point, [] {});
      }
    }
    backward(
        sum(mul(net.forward(random_leaf(context, {2, 3}, 1)), random_leaf(context, {2, 3}, 2))));
    return to_host<float>(net.first.linear.weight.value.grad());
  };
  CHECK(same_bits(gradient(true), gradient(false)));
}

TEST_CASE("a frozen parameter gets no gradient, and those before it do") {
  Context context(small_context());
  Net net;
  net.second.linear.weight.trainable = false;
  materialize(net, context, DType::kF32, 1);
  backward(sum(net.forward(random_leaf(context, {2, 3}, 1))));
  CHECK_FALSE(net.second.linear.weight.value.grad().defined());
  CHECK(net.first.linear.weight.value.grad().defined());
}

TEST_CASE("a saved parameter may lose its memory and get it back before backward") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 1);
  const Tensor x = random_leaf(context, {2, 3}, 1);
  const auto gradient = [&](bool gather_again) {
    const Tensor loss = sum(mul(net.forward(x), random_leaf(context, {2, 3}, 2)));
    Parameter& weight = net.second.linear.weight;
    const auto storage = weight.value.storage();
    if (gather_again) {
      const std::vector<float> values = to_host<float>(weight.value);
      weight.unbind();
      CHECK_THROWS_AS(net.second.linear.forward(x), InternalError);
      const Tensor copy = from_host<float>(context, values, {9}, MemoryTag::kParameter);
      weight.bind(context, copy.storage(), 0, DType::kF32);
    }
    const Tensor before = net.first.linear.weight.value.grad();
    backward(loss);
    const auto result = to_host<float>(net.first.linear.bias->value.grad());
    return result;
  };
  const std::vector<float> once = gradient(false);
  std::vector<float> twice = once;
  for (float& value : twice) value *= 2;
  CHECK(same_bits(gradient(true), twice));
}

TEST_CASE("a buffer has memory once its module is materialised") {
  struct Counting : Module {
    Counting() { declare_buffer({.name = "seen", .shape = {2}, .initial = 3}); }
    void again() { declare_buffer({.name = "seen", .shape = {1}}); }
  };
  Counting module;
  REQUIRE(module.buffers().size() == 1);
  Buffer& seen = *module.buffers().front();
  CHECK(seen.full_name() == "seen");
  CHECK(seen.persistent);
  CHECK(seen.needs_memory());
  CHECK_THROWS_AS(seen.value.view(), InternalError);
  CHECK_THROWS_AS(module.again(), InternalError);
  Context context(small_context());
  materialize(module, context, DType::kBF16, 1);
  CHECK(to_host<float>(seen.value) == std::vector<float>{3, 3});
  CHECK_FALSE(seen.needs_memory());
  seen.unbind();
  CHECK(seen.needs_memory());
  seen.value = {};  // now the module has no buffer values
  CHECK_FALSE(seen.needs_memory());
  materialize(module, context, DType::kBF16, 1);
  CHECK_FALSE(seen.value.defined());
}

}  // namespace shale::test
