#include "shale/runtime/optim/lamb.h"

#include <cmath>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

// A module with the parameters of the fixture.
struct Net : Module {
  explicit Net(const Json& parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto sizes = parameters[i]["shape"].get<std::vector<int64_t>>();
      const Shape shape = sizes.size() == 2 ? Shape{sizes[0], sizes[1]} : Shape{sizes[0]};
      declare(cat("p", i), shape, Init::ones(), parameters[i]["decay"].get<bool>());
    }
  }
};

void upload(const Tensor& to, const std::vector<float>& values) {
  to.context().copy(to.data(), values.data(), to.bytes());
}

void give(const OptimShard& shard, const std::vector<float>& gradient) {
  upload(shard.grad, gradient);
  leaf_state(shard.spans[0].parameter->value).has_value = true;
}

struct Matrix : Module {
  Matrix() : weight(declare("weight", {600, 512}, Init::normal(0.02f))) {}
  Parameter& weight;
};

}  // namespace

TEST_CASE("LAMB does to parameters what its paper says") {
  const Json wanted = json_file(fixture_path("lamb.json"));
  const Json& parameters = wanted["parameters"];
  Context context(small_context(1));
  Net net(parameters);
  materialize(net, context, DType::kF32, 1);
  optim::Lamb optimizer(local_shards(net, context),
                        {.weight_decay = wanted["weight_decay"].get<float>(),
                         .trust_max = wanted["trust_max"].get<float>()});
  for (size_t i = 0; i < parameters.size(); ++i) {
    upload(optimizer.shards()[i].master, parameters[i]["start"].get<std::vector<float>>());
  }
  for (size_t step = 0; step < parameters[0]["gradients"].size(); ++step) {
    optimizer.prepare(context, int64_t(step), wanted["lr"].get<float>());
    for (size_t i = 0; i < parameters.size(); ++i) {
      give(optimizer.shards()[i], parameters[i]["gradients"][step].get<std::vector<float>>());
    }
    optimizer.step();
    optimizer.zero_grad();
    for (size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(step, i);
      const auto want = parameters[i]["after"][step].get<std::vector<double>>();
      const double size = std::max(max_abs(want), 0.1);
      // Allows a few f32 roundings of the weights and their updates in each step.
      CHECK(max_error(to_host<float>(optimizer.shards()[i].master), want) <=
            4 * ulp<float>() * size * double(step + 1));
    }
  }
}

// The matrix is divided into two shards. The test exchanges their sums as two ranks would.
TEST_CASE("LAMB over parts of a matrix has the bits of LAMB over the matrix") {
  constexpr int64_t kCount = 600 * 512, kCut = 270 * 1024;  // kCut is beyond the first work item
  Context context(small_context(1));
  Matrix whole, parts;
  materialize(whole, context, DType::kF32, 1);
  materialize(parts, context, DType::kF32, 1);
  optim::Lamb want(local_shards(whole, context), {});
  const OptimShard all = local_shards(parts, context)[0];
  std::vector<OptimShard> cut;
  for (const auto& [begin, end] : {std::pair{int64_t{0}, kCut}, std::pair{kCut, kCount}}) {
    OptimShard shard = all;
    shard.master = vector_slice(all.master, begin, end - begin);
    shard.grad = vector_slice(all.grad, begin, end - begin);
    shard.spans = {{.parameter = &parts.weight, .first = begin, .offset = 0, .count = end - begin}};
    cut.push_back(shard);
  }
  CHECK(contains(message_of<ConfigError>([&] { optim::Lamb refused(cut, {}); }),
                 "elements of weight"));
  const auto peers = std::make_shared<ShardPeers>();
  for (OptimShard& shard : cut) shard.peers = peers;
  optim::Lamb got(cut, {});
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> gradient = randn<float>(kCount, uint64_t(step));
    for (optim::Lamb* const optimizer : {&want, &got}) {
      optimizer->prepare(context, step, 0.05f);
      upload(optimizer == &want ? want.shards()[0].grad : all.grad, gradient);
      leaf_state((optimizer == &want ? whole : parts).weight.value).has_value = true;
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  CHECK(same_bits(to_host<float>(all.master), to_host<float>(want.shards()[0].master)));
}

TEST_CASE("LAMB leaves all as it is for a gradient that is not finite") {
  Context context(small_context(1));
  Matrix net;
  materialize(net, context, DType::kF32, 1);
  optim::Lamb optimizer(local_shards(net, context), {});
  const auto state = [&] {
    std::vector<float> all = to_host<float>(optimizer.shards()[0].master);
    for (const optim::OptimState& part : optimizer.states()) {
      const std::vector<float> values = to_host<float>(part.value);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto step = [&](int64_t number, float factor) {
    std::vector<float> gradient = randn<float>(600 * 512, uint64_t(number));
    gradient[7] *= factor;
    optimizer.prepare(context, number, 0.05f);
    give(optimizer.shards()[0], gradient);
    optim::clip_grad_norm(context, optimizer.shards(), 1);
    optimizer.step();
    optimizer.zero_grad();
  };
  step(0, 1);
  const std::vector<float> before = state();
  step(1, INFINITY);
  CHECK(same_bits(state(), before));
  step(2, 1);
  CHECK_FALSE(same_bits(state(), before));
}

TEST_CASE("LAMB refuses what is stepped elsewhere, and limits that cross") {
  Context context(small_context(1));
  Matrix net;
  materialize(net, context, DType::kF32, 1);
  std::vector<OptimShard> shards = local_shards(net, context);
  CHECK(contains(message_of<ConfigError>(
                     [&] { optim::Lamb refused(shards, {.trust_min = 2, .trust_max = 1}); }),
                 "expected 0 <= trust_min <= trust_max"));
  shards.front().fence = std::make_shared<StepFence>();
  const std::string message = message_of<ConfigError>([&] { optim::Lamb refused(shards, {}); });
  CHECK(contains(message, shards.front().name));
  CHECK(contains(message, "do not offload"));
}

}  // namespace shale::test
