#include "shale/runtime/optim/adafactor.h"

#include "shale/kernels/elementwise.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

Json fixture() {
  return json_file(fixture_path("adafactor.json"));
}

// A module with the parameters of the fixture.
struct Net : Module {
  explicit Net(const Json& parameters, int64_t padding_rows = 0) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto sizes = parameters[i]["shape"].get<std::vector<int64_t>>();
      const int64_t more = sizes.size() == 2 ? padding_rows : 0;
      const Shape shape = sizes.size() == 2 ? Shape{sizes[0] + more, sizes[1]} : Shape{sizes[0]};
      declare(cat("p", i), shape, Init::zeros()).padding_rows = more;
    }
  }
};

// Overwrites the first elements of a tensor.
void upload(const Tensor& to, const std::vector<float>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  to.context().copy(to.data(), values.data(), bytes);
}

}  // namespace

TEST_CASE("Adafactor does to matrices and vectors what transformers' does, padded or not") {
  const Json wanted = fixture();
  const Json& parameters = wanted["parameters"];
  const int64_t padding_rows = GENERATE(0, 7);
  Context context(small_context(1));
  Net net(parameters, padding_rows);
  materialize(net, context, DType::kF32, 1);
  optim::Adafactor optimizer(local_shards(net, context),
                             {.weight_decay = wanted["weight_decay"].get<float>()});
  for (size_t i = 0; i < parameters.size(); ++i) {
    upload(optimizer.shards()[i].master, parameters[i]["start"].get<std::vector<float>>());
  }
  for (size_t step = 0; step < parameters[0]["gradients"].size(); ++step) {
    optimizer.prepare(context, int64_t(step), wanted["lr"].get<float>());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const OptimShard& shard = optimizer.shards()[i];
      kernels::fill(context.exec(), {.y = shard.grad, .value = 0});
      upload(shard.grad, parameters[i]["gradients"][step].get<std::vector<float>>());
      leaf_state(shard.spans[0].parameter->value).has_value = true;
    }
    optimizer.step();
    optimizer.zero_grad();
    for (size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(step, i);
      const auto want = parameters[i]["after"][step].get<std::vector<double>>();
      // Both implementations round in f32, in different places: a few roundings of order one.
      std::vector<float> got = to_host<float>(optimizer.shards()[i].master);
      got.resize(want.size());
      CHECK(max_error(got, want) <= 1e-6);
    }
  }
}

TEST_CASE("Adafactor keeps a number per row and column of a matrix") {
  struct Matrix : Module {
    Matrix() : weight(declare("weight", {512, 512}, Init::ones())) {}
    Parameter& weight;
  };
  Context context(small_context(1));
  Matrix net;
  materialize(net, context, DType::kF32, 1);
  optim::Adafactor optimizer(local_shards(net, context), {});
  REQUIRE(optimizer.states().size() == 1);
  CHECK(optimizer.states()[0].value.numel() == 512 + 512);
  CHECK(context.allocator().stats().current[size_t(MemoryTag::kOptimizer)] < 16384);
}

TEST_CASE("Adafactor refuses shards whose step goes on beside forward") {
  struct Vector : Module {
    Vector() { declare("gain", {8}, Init::ones()); }
  };
  Context context(small_context(1));
  Vector net;
  materialize(net, context, DType::kF32, 1);
  std::vector<OptimShard> shards = local_shards(net, context);
  shards.front().fence = std::make_shared<StepFence>();
  const std::string message =
      message_of<ConfigError>([&] { optim::Adafactor refused(shards, {}); });
  CHECK(contains(message, shards.front().name));
  CHECK(contains(message, "do not offload"));
}

// Divides a matrix into two shards.
TEST_CASE("Adafactor over parts of a matrix is Adafactor over the matrix, to rounding") {
  struct Matrix : Module {
    Matrix() : weight(declare("weight", {6, 512}, Init::normal(1))) {}
    Parameter& weight;
  };
  constexpr int64_t kCount = 6 * 512, kCut = 1024;  // kCut is the end of the second row
  Context context(small_context(1));
  Matrix whole, parts;
  materialize(whole, context, DType::kF32, 1);
  materialize(parts, context, DType::kF32, 1);
  optim::Adafactor want(local_shards(whole, context), {});
  const OptimShard all = local_shards(parts, context)[0];
  std::vector<OptimShard> cut;
  for (const auto& [begin, end] : {std::pair{int64_t{0}, kCut}, std::pair{kCut, kCount}}) {
    OptimShard shard = all;
    shard.master = vector_slice(all.master, begin, end - begin);
    shard.grad = vector_slice(all.grad, begin, end - begin);
    shard.spans = {{.parameter = &parts.weight, .first = begin, .offset = 0, .count = end - begin}};
    cut.push_back(shard);
  }
  CHECK(contains(message_of<ConfigError>([&] { optim::Adafactor refused(cut, {}); }),
                 "has 1024 of the 3072 elements of weight"));
  // One optimizer has both shards, so they add to the same statistics.
  const auto peers = std::make_shared<ShardPeers>();
  peers->sum = [](const Tensor&) {};
  for (OptimShard& shard : cut) shard.peers = peers;
  optim::Adafactor got(cut, {});
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> gradient = randn<float>(kCount, uint64_t(step));
    for (optim::Optimizer* optimizer :
         {static_cast<optim::Optimizer*>(&want), static_cast<optim::Optimizer*>(&got)}) {
      optimizer->prepare(context, step, 0.05f);
      const bool is_whole = optimizer == &want;
      upload(is_whole ? want.shards()[0].grad : all.grad, gradient);
      leaf_state((is_whole ? whole : parts).weight.value).has_value = true;
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  CHECK(max_error(to_host<float>(all.master), to_f64(to_host<float>(want.shards()[0].master))) <=
        1e-6);
}

}  // namespace shale::test
