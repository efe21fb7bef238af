// Tests optimizers with small states: how much memory they need, and that they train.
#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

constexpr int64_t kIn = 12, kHidden = 48, kOut = 6, kRows = 64;

struct Mlp : Module {
  Mlp()
      : fc(this, "fc", kIn, kHidden, Init::normal(0.3f)),
        proj(this, "proj", kHidden, kOut, Init::normal(0.1f)) {}
  Tensor forward(const Tensor& x) { return proj.forward(gelu(fc.forward(x))); }
  nn::Linear fc, proj;
};

using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard> shards)>;

template <typename T, typename Options>
MakeOptimizer maker(const Options& options) {
  return [options](std::vector<OptimShard> shards) {
    return std::make_unique<T>(std::move(shards), options);
  };
}

// Trains a network for `steps` steps to match another one of the same shape. Returns the final mean
// squared distance divided by the initial one.
double remaining_loss(const MakeOptimizer& make, float lr, int steps) {
  Context context(small_context(1));
  Mlp teacher, student;
  materialize(teacher, context, DType::kF32, 1);
  materialize(student, context, DType::kF32, 2);
  const auto optimizer = make(local_shards(student, context));
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    const Tensor x =
        from_host<float>(context, randn<float>(kRows * kIn, uint64_t(step % 8)), {kRows, kIn});
    optimizer->prepare(context, step, lr * float(steps - step) / float(steps));
    const Tensor distance = add(student.forward(x), scale(teacher.forward(x).detach(), -1));
    const Tensor loss = mean(mul(distance, distance));
    backward(loss);
    optimizer->step();
    optimizer->zero_grad();
    last = double(to_host<float>(loss)[0]);
    if (step == 0) first = last;
  }
  return last / first;
}

double state_bytes_per_parameter(const MakeOptimizer& make, int64_t count) {
  struct Flat : Module {
    explicit Flat(int64_t n) : weight(declare("weight", {n}, Init::ones())) {}
    Parameter& weight;
  };
  Context context(small_context(1));
  Flat flat(count);
  materialize(flat, context, DType::kF32, 1);
  std::vector<OptimShard> shards = local_shards(flat, context);
  const auto tagged = [&] {
    return context.allocator().stats().current[size_t(MemoryTag::kOptimizer)];
  };
  const int64_t before = tagged();
  const auto optimizer = make(std::move(shards));
  return double(tagged() - before) / double(count);
}

using optim::AdamW;
using optim::AdamWOptions;
using optim::Lion;
using optim::LionOptions;
using optim::Moments;
using optim::Sgd;
using optim::SgdOptions;

}  // namespace

TEST_CASE("optimizer states take the bytes that they are said to take") {
  constexpr int64_t kCount = 1 << 20;  // so large that the allocator's rounding does not matter
  const auto bytes = [&](const MakeOptimizer& make) {
    return state_bytes_per_parameter(make, kCount);
  };
  CHECK(bytes(maker<AdamW>(AdamWOptions{})) == 8);
  CHECK(bytes(maker<AdamW>(AdamWOptions{.moments = Moments::kBF16})) == 4);
  CHECK(bytes(maker<AdamW>(AdamWOptions{.moments = Moments::kInt8})) == 2 + 8.0 / 64);
  CHECK(bytes(maker<Lion>(LionOptions{})) == 4);
  CHECK(bytes(maker<Lion>(LionOptions{.moments = Moments::kBF16})) == 2);
  CHECK(bytes(maker<Sgd>(SgdOptions{})) == 4);
  CHECK(bytes(maker<Sgd>(SgdOptions{.momentum = 0})) == 0);
}

TEST_CASE("optimizers with small states train as far as AdamW with f32 states does") {
  constexpr int kSteps = 300;
  const double want = remaining_loss(maker<AdamW>(AdamWOptions{.weight_decay = 0}), 1e-2f, kSteps);
  CHECK(want < 0.02);
  const auto with = [&](Moments moments) {
    return remaining_loss(maker<AdamW>(AdamWOptions{.weight_decay = 0, .moments = moments}), 1e-2f,
                          kSteps);
  };
  // Rounding the moments adds noise without bias to the direction of a step. The remaining loss may
  // grow by a fraction of itself.
  CHECK(with(Moments::kBF16) < 1.2 * want);
  CHECK(with(Moments::kInt8) < 1.5 * want);
  const auto lion = [&](Moments moments) {
    return remaining_loss(maker<Lion>(LionOptions{.weight_decay = 0, .moments = moments}), 8e-3f,
                          kSteps);
  };
  CHECK(lion(Moments::kF32) < 2 * want);
  CHECK(lion(Moments::kBF16) < 2 * want);
}

TEST_CASE("neighbouring spans of one decay are stepped at once, with the padding between them") {
  struct Many : Module {
    Many()
        : a(declare("a", {3}, Init::ones(), false)),
          b(declare("b", {5}, Init::ones(), false)),
          c(declare("c", {7}, Init::ones(), true)),
          d(declare("d", {2}, Init::ones(), false)) {}
    Parameter &a, &b, &c, &d;
  };
  Context context(small_context(1));
  Many many;
  OptimShard shard{.name = "many", .master = {}, .grad = {}, .compute = {}, .spans = {}};
  int64_t offset = 0;
  for (Parameter* parameter : many.parameters()) {
    shard.spans.push_back(
        {.parameter = parameter, .first = 0, .offset = offset, .count = parameter->numel()});
    offset += 1024;
  }
  const std::vector<optim::OptimRun> runs = optim::runs_of(shard, 0.1f);
  REQUIRE(runs.size() == 3);
  CHECK((runs[0].offset == 0 && runs[0].count == 1024 + 5 && runs[0].weight_decay == 0));
  CHECK((runs[1].offset == 2048 && runs[1].count == 7 && runs[1].weight_decay == 0.1f));
  CHECK((runs[2].offset == 3072 && runs[2].count == 2 && runs[2].weight_decay == 0));
  std::swap(shard.spans[2], shard.spans[3]);
  std::swap(shard.spans[1], shard.spans[2]);
  CHECK(contains(message_of<InternalError>([&] { optim::runs_of(shard, 0); }), "b begins at 1024"));
}

TEST_CASE("moments that could not decay are refused") {
  Context context(small_context(1));
  Mlp net;
  materialize(net, context, DType::kF32, 1);
  const auto adamw = [&](float beta2) {
    AdamW(local_shards(net, context), {.beta2 = beta2, .moments = Moments::kBF16});
  };
  CHECK_NOTHROW(adamw(0.99f));
  CHECK(message_of<ConfigError>([&] { adamw(0.999f); }) ==
        "adamw: beta2 is 0.999, expected less than 0.99609375 with bf16 moments");
  CHECK(contains(message_of<ConfigError>(
                     [&] { Lion(local_shards(net, context), {.moments = Moments::kInt8}); }),
                 "8-bit moments are not supported"));
}

}  // namespace shale::test
