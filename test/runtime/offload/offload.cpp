// Tests offload to host memory: results are bit-identical, with less device memory. Runs on an
// emulated GPU in every order of streams, so that missing waits are detected.
#include <optional>

#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/offload/activations.h"
#include "shale/runtime/offload/optimizer_offload.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using offload::ActivationOffload;
using offload::HostTier;
using offload::OptimizerOffload;

// Returns the CPU, and emulated GPUs whose streams run in different orders.
std::vector<std::unique_ptr<Context>> all_devices() {
  std::vector<std::unique_ptr<Context>> contexts;
  contexts.push_back(std::make_unique<Context>(small_context(1)));
  for (auto& gpu : emulated_gpus(emulator_orders())) {
    contexts.push_back(std::make_unique<Context>(ContextOptions{}, std::move(gpu)));
  }
  return contexts;
}

void assign(const Tensor& to, const Tensor& x, float factor = 1) {
  kernels::axpby(to.exec(), {.a = x, .y = to, .alpha = factor});
}

Tensor scaled(const Tensor& x, float factor) {
  Tensor y = empty_like(x);
  assign(y, x, factor);
  return y;
}

}  // namespace

TEST_CASE("saved tensors come back from the host as they were", "[offload]") {
  constexpr int64_t kCount = 3000;
  const std::vector<float> values = randn<float>(kCount, 1);
  const int prefetch = GENERATE(0, 2);
  for (const auto& context : all_devices()) {
    HostTier tier(*context, {});
    ActivationOffload offload(tier, {.min_bytes = 0, .prefetch = prefetch});
    const SavedTensorHooks hooks = offload.hooks();
    const Tensor source = from_host<float>(*context, values, {kCount});
    std::vector<std::shared_ptr<void>> packed;
    for (int i = 0; i < 5; ++i) {
      packed.push_back(hooks.pack(scaled(source, float(i + 1))));
      // The device memory is free after the save. Overwriting it must not change the restored
      // value.
      scaled(source, -1);
    }
    const Tensor view = scaled(source, 10);
    packed.push_back(hooks.pack(view.alias({10, 20}, {30, 1}, 7)));
    Tensor sum = scaled(source, 0);
    for (size_t i = packed.size(); i-- > 0;) {
      const Tensor x = hooks.unpack(packed[i]);
      packed[i].reset();
      scaled(source, -1);
      if (i == 5) {
        CHECK((x.shape() == Shape{10, 20} && x.strides() == Shape{30, 1}));
        const Tensor row = empty(*context, {20}, DType::kF32);
        assign(row, x.alias({20}, {1}, 90));
        CHECK(to_host<float>(row)[4] == 10 * values[7 + 90 + 4]);
        continue;
      }
      kernels::axpby(context->exec(), {.a = x, .b = sum, .y = sum});
    }
    // Adds 5x + 4x + 3x + 2x + x in this order, with the CPU's rounding.
    std::vector<float> want(kCount);
    for (int i = 5; i > 0; --i) {
      for (size_t k = 0; k < want.size(); ++k) want[k] += float(i) * values[k];
    }
    CHECK(same_bits(to_host<float>(sum), want));
  }
}

TEST_CASE("one storage travels once, however many ops save it", "[offload]") {
  Context context(small_context(1));
  HostTier tier(context, {});
  ActivationOffload offload(tier, {.min_bytes = 0});
  const SavedTensorHooks hooks = offload.hooks();
  const Tensor x = full(context, {100}, DType::kF32, 1);
  const auto first = hooks.pack(x), half = hooks.pack(x.alias({50}, {1}, 50));
  CHECK(offload.bytes_offloaded() == 400);
  x.bump_version();  // makes a new version of x
  const auto second = hooks.pack(x);
  CHECK(offload.bytes_offloaded() == 800);
  // x is still on the device, so nothing is copied.
  CHECK(hooks.unpack(first).storage() == x.storage());
}

namespace {

constexpr int kDepth = 8;

struct Net : Module {
  Net()
      : a(this, "a", 32, 128, Init::normal(0.3f)),
        b(this, "b", 128, 128, Init::normal(0.1f)),
        c(this, "c", 128, 8, Init::normal(0.1f)) {}
  Tensor forward(const Tensor& x) {
    Tensor y = gelu(a.forward(x));
    for (int i = 0; i < kDepth; ++i) y = gelu(b.forward(y));
    return c.forward(y);
  }
  nn::Linear a, b, c;
};

struct NetRun {
  std::vector<float> gradient;
  int64_t device_activations = 0;  // peak of activations on the device
  int64_t host_activations = 0;
};

NetRun run_net(bool offloaded) {
  Context context(small_context(1));
  HostTier tier(context, {});
  ActivationOffload offload(tier, {.prefetch = 1});
  Net net;
  materialize(net, context, DType::kF32, 1);
  const auto shards = local_shards(net, context);
  const Tensor x = from_host<float>(context, randn<float>(256 * 32, 1), {256, 32});
  context.allocator().reset_peak();
  {
    std::optional<SavedTensorHooksScope> scope;
    if (offloaded) scope.emplace(context, offload.hooks());
    Tensor loss = sum(net.forward(x));
    scope.reset();
    backward(loss);
  }
  NetRun run;
  for (const OptimShard& shard : shards) {
    const std::vector<float> values = to_host<float>(shard.grad);
    run.gradient.insert(run.gradient.end(), values.begin(), values.end());
  }
  constexpr auto kTag = size_t(MemoryTag::kActivation);
  run.device_activations = context.allocator().stats().at_peak[kTag];
  run.host_activations = tier.context().allocator().stats().at_peak[kTag];
  return run;
}

}  // namespace

TEST_CASE("activations on the host leave gradients as they are and the device emptier",
          "[offload]") {
  const NetRun plain = run_net(false), offloaded = run_net(true);
  CHECK(same_bits(offloaded.gradient, plain.gradient));
  CHECK(plain.host_activations == 0);
  // For backward, each hidden layer saves its input and the input of GELU.
  constexpr int64_t kWaiting = 2 * kDepth * (256 * 128 * 4);
  CHECK(plain.device_activations >= kWaiting);
  CHECK(offloaded.host_activations >= kWaiting);
  CHECK(offloaded.device_activations < plain.device_activations / 2);
}

// ---- Offload of the optimizer ----

namespace {

constexpr int64_t kParameters = 5000;

// A parameter in device memory; its master may be in a host tier.
struct OneParameter : Module {
  OneParameter(Context& device, Context& masters, DType compute)
      : parameter(declare("weight", {kParameters}, Init::normal(1))) {
    const Shape shape = {kParameters};
    shard.name = "weight";
    shard.master = empty(masters, shape, DType::kF32, MemoryTag::kOptimizer);
    shard.grad = empty(device, shape, DType::kF32, MemoryTag::kGradient);
    shard.fence = std::make_shared<StepFence>();
    parameter.write_initial(masters.exec(), 7, 0, shard.master);
    if (&masters != &device || compute != DType::kF32) {
      shard.compute = empty(device, shape, compute, MemoryTag::kParameter);
    }
    const Tensor& value = shard.compute.defined() ? shard.compute : shard.master;
    parameter.bind(device, value.storage(), 0, value.dtype());
    shard.spans = {{.parameter = &parameter, .first = 0, .offset = 0, .count = kParameters}};
    leaf_state(parameter.value).grad = shard.grad;
  }
  Parameter& parameter;
  OptimShard shard;
};

struct StepOptions {
  DType compute = DType::kF32;
  bool background = true;
  int bad_step = -1;       // number of the step whose gradient is not finite; -1: none
  bool announced = false;  // true: gradients are announced as complete before the step
  bool early = false;      // true: parameters are updated as soon as their gradients are announced
};

// Makes steps whose gradients depend on the updated parameters, as in real training, and returns
// the master weights. Uses only operations that an emulated GPU supports: copies and axpby.
std::vector<float> masters_after_steps(Context& device, bool offloaded,
                                       const StepOptions& options) {
  HostTier tier(device, {});
  Context& memory = offloaded ? tier.context() : device;
  OneParameter one(device, memory, options.compute);
  if (offloaded) {  // copies the rounded initial parameters to the device, as data parallelism does
    const Tensor rounded = empty(memory, {kParameters}, options.compute);
    kernels::axpby(memory.exec(), {.a = one.shard.master, .y = rounded});
    device.copy(one.shard.compute.data(), rounded.data(), rounded.bytes());
    device.synchronize();
  } else if (options.compute != DType::kF32) {
    kernels::axpby(device.exec(), {.a = one.shard.master, .y = one.shard.compute});
  }
  OptimizerOffload offload(tier, {one.shard}, options.background);
  optim::AdamW optimizer(offload.shards(), {});
  const Tensor base = from_host<float>(device, randn<float>(kParameters, 3), {kParameters});
  for (int step = 0; step < 5; ++step) {
    optimizer.prepare(device, step, 0.05f);
    one.shard.fence->wait(device.exec().stream);
    if (options.early) offload.step_during_backward(optimizer);
    leaf_state(one.parameter.value).has_value = true;
    kernels::axpby(device.exec(), {.a = one.parameter.value.alias({kParameters}, {1}),
                                   .b = base,
                                   .y = one.shard.grad,
                                   .alpha = 0.3f});
    if (step == options.bad_step) {
      const StepState bad{.clip_factor = 0, .non_finite = 1};
      device.copy(&device.exec().step->non_finite, &bad.non_finite, sizeof(bad.non_finite));
    }
    if (options.announced || options.early) one.shard.fence->gradient_complete({});
    offload.step(optimizer);
    optimizer.zero_grad();
  }
  offload.finish();
  // The next forward must read the rounded master weights.
  const Tensor seen = empty(device, {kParameters}, DType::kF32);
  kernels::axpby(device.exec(), {.a = one.parameter.value.alias({kParameters}, {1}), .y = seen});
  std::vector<float> values = to_host<float>(seen);
  const std::vector<float> masters = to_host<float>(one.shard.master);
  values.insert(values.end(), masters.begin(), masters.end());
  return values;
}

}  // namespace

TEST_CASE("a step on the host gives the bits of a step on the device", "[offload]") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int bad_step : {-1, 2}) {
      Context cpu(small_context(1));
      StepOptions options{.compute = compute, .background = false, .bad_step = bad_step};
      const std::vector<float> want = masters_after_steps(cpu, false, options);
      for (const bool background : {false, true}) {
        options.background = background;
        for (const auto& device : all_devices()) {
          CAPTURE(to_string(device->device()), dtype_name(compute), background, bad_step);
          CHECK(same_bits(masters_after_steps(*device, true, options), want));
        }
      }
    }
  }
}

TEST_CASE("a step on the host that begins with its gradient gives the same bits", "[offload]") {
  Context cpu(small_context(1));
  StepOptions options{.compute = DType::kBF16, .background = false};
  const std::vector<float> want = masters_after_steps(cpu, false, options);
  options.announced = true;
  for (const bool early : {false, true}) {
    options.early = early;
    for (const bool background : {false, true}) {
      options.background = background;
      for (const auto& device : all_devices()) {
        CAPTURE(to_string(device->device()), background, early);
        CHECK(same_bits(masters_after_steps(*device, true, options), want));
      }
    }
  }
}

TEST_CASE("a gradient leaves for the host when it is complete, and may be stepped there at once",
          "[offload]") {
  for (const bool early : {false, true}) {
    CAPTURE(early);
    Context device(small_context(1));
    HostTier tier(device, {});
    OneParameter one(device, tier.context(), DType::kF32);
    OptimizerOffload offload(tier, {one.shard}, /*background=*/false);
    optim::AdamW optimizer(offload.shards(), {});
    optimizer.prepare(device, 0, 0.05f);
    kernels::fill(device.exec(), {.y = one.shard.grad, .value = 3});
    leaf_state(one.parameter.value).has_value = true;
    const std::vector<float> before = to_host<float>(one.shard.master);
    if (early) offload.step_during_backward(optimizer);
    one.shard.fence->gradient_complete({});
    CHECK(to_host<float>(offload.shards()[0].grad) == std::vector<float>(kParameters, 3));
    const std::vector<float> between = to_host<float>(one.shard.master);
    CHECK(same_bits(between, before) == !early);
    if (early) {
      CHECK(contains(message_of<InternalError>([&] { one.shard.fence->gradient_complete({}); }),
                     "before the last backward"));
    }
    offload.step(optimizer);
    const std::vector<float> after = to_host<float>(one.shard.master);
    CHECK_FALSE(same_bits(after, before));
    CHECK(same_bits(after, between) == early);
  }
}

TEST_CASE("what a step on the host fails with reaches who waits for it", "[offload]") {
  Context device(small_context(1));
  HostTier tier(device, {});
  OneParameter one(device, tier.context(), DType::kBF16);
  struct Failing : optim::Optimizer {
    explicit Failing(std::vector<OptimShard> shards) : Optimizer(std::move(shards)) {}
    void update(size_t, const Tensor&) override { throw InternalError("no step today"); }
  };
  for (const bool background : {true, false}) {
    OptimizerOffload offload(tier, {one.shard}, background);
    Failing optimizer(offload.shards());
    optimizer.prepare(device, 0, 0.05f);
    leaf_state(one.parameter.value).has_value = true;
    const auto step = [&] { offload.step(optimizer); };
    if (background) {
      step();
    } else {
      CHECK(message_of<InternalError>(step) == "no step today");
    }
    for (int i = 0; i < 2; ++i) {
      CHECK(message_of<InternalError>([&] { one.shard.fence->wait(nullptr); }) == "no step today");
    }
  }
}

TEST_CASE("host memory that is exhausted names the host and who asked", "[offload]") {
  Context device(small_context(1));
  HostTier tier(device, {.host_memory = int64_t{4} << 20});
  const std::string message = message_of<OutOfMemoryError>([&] {
    static_cast<void>(tier.allocate(int64_t{8} << 20, DType::kU8, MemoryTag::kOptimizer, "h.7"));
  });
  CHECK(contains(message, "h.7 needs 8"));
  CHECK(contains(message, "budget of host"));
  CHECK(contains(message, "memory of host"));
}

}  // namespace shale::test
