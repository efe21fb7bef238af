// Tests sharded data parallelism on models of many structures, and its error messages.
#include <sstream>

#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/data/sharded_parameter.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::DataParallelOptions;
using comm::ProcessGroup;
using comm::ShardedParameter;

// y = outer(gelu(inner(x))), where the outer module also uses the inner one's weight.
struct Inner : Module {
  Inner(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)),
        linear(this, "linear", 40, 40, Init::normal(0.15f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [&](const Tensor& in) { return gelu(linear.forward(in)); });
  }
  nn::Linear linear;
};

struct Outer : Module {
  Outer(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)),
        inner(this, "inner"),
        after(this, "after", 40, 40, Init::normal(0.15f)) {
    tie(inner.linear.weight);
  }
  // The outer unit owns the inner unit's weight, because it uses the weight too.
  Tensor forward(const Tensor& x) {
    return run(x, [&](const Tensor& in) {
      return add(after.forward(inner.forward(in)), shale::linear(in, inner.linear.weight.value));
    });
  }
  Inner inner;
  nn::Linear after;
};

struct Net : Module {
  Net()
      : head(this, "head", 40, 40, Init::normal(0.15f)),
        first(this, "first"),
        second(this, "second"),
        spare(this, "spare") {
    second.after.bias->trainable = false;
  }
  // Uses `first` twice, and `spare` only on some ranks.
  Tensor loss(const Tensor& x, bool use_spare_bias) {
    return run(x, [&](const Tensor& in) {
      Tensor y = first.forward(second.forward(first.forward(in)));
      y = spare.run_parts(y, use_spare_bias);
      return mean(mul(head.forward(y), y));
    });
  }
  struct Spare : Module {
    explicit Spare(Module* parent, std::string child_name)
        : Module(parent, std::move(child_name)),
          linear(this, "linear", 40, 40, Init::normal(0.15f)) {}
    Tensor run_parts(const Tensor& x, bool use_bias) {
      return run(x, [&](const Tensor& in) {
        return use_bias ? linear.forward(in) : shale::linear(in, linear.weight.value);
      });
    }
    nn::Linear linear;
  };
  nn::Linear head;
  Outer first, second;
  Spare spare;

  std::vector<Module*> units() { return {&first.inner, &first, &second.inner, &second, &spare}; }
};

// A root module that has the tested module as its child.
template <typename T>
struct Root : Module {
  Root() : net(this, "net") {}
  T net;
};

struct Result {
  std::vector<float> gradients, parameters, norms;
  std::vector<std::string> unused;
};

// Runs three steps of two backward passes each, with uneven batches: rank r has r + 1 rows.
Result train_net(ProcessGroup& group, const DataParallelOptions& options, bool spare_everywhere) {
  Context context(small_context(1));
  Net net;
  DataParallel parallel(net, net.units(), context, group, options);
  optim::Sgd optimizer(parallel.shards(), {.momentum = 0.5f});
  Result result;
  for (int step = 0; step < 3; ++step) {
    optimizer.prepare(context, step, 0.1f);
    for (const bool last : {false, true}) {
      const Tensor x = from_host<float>(
          context, randn<float>(40 * (group.rank() + 1), uint64_t(10 * step + group.rank() + last)),
          {group.rank() + 1, 40});
      const Tensor loss = net.loss(x, spare_everywhere || group.rank() % 2 == 0);
      parallel.begin_backward(last);
      backward(loss);
    }
    parallel.finish_gradients();
    for (const Parameter* parameter : net.parameters()) {
      if (!parameter->trainable) continue;
      const auto gradient = full_gradient(parallel, group, *parameter);
      REQUIRE(int64_t(gradient.size()) == parameter->numel());
      result.gradients.insert(result.gradients.end(), gradient.begin(), gradient.end());
    }
    parallel.clip_grad_norm(1);
    result.norms.push_back(context.read_step().grad_norm);
    optimizer.step();
    optimizer.zero_grad();
  }
  result.unused = parallel.unused_parameters();
  parallel.full_state([&](const Parameter&, const View& values) {
    result.parameters.insert(result.parameters.end(), values.as<float>(),
                             values.as<float>() + values.numel());
  });
  return result;
}

// Sums over ranks and micro-batches are added in different orders: a few roundings of sums whose
// terms are as large as the largest, carried through three steps.
void check_close(const std::vector<float>& got, const std::vector<float>& want) {
  const std::vector<double> expected = to_f64(want);
  CHECK(max_error(to_f64(got), expected) <= 64 * ulp<float>() * std::max(1.0, max_abs(expected)));
}

void check_close(const Result& got, const Result& want) {
  check_close(got.gradients, want.gradients);
  check_close(got.norms, want.norms);
  check_close(got.parameters, want.parameters);
}

}  // namespace

TEST_CASE(
    "nested units, tied, frozen and partly used parameters, modules used twice, uneven batches") {
  const auto group = world().group();
  for (const bool spare_everywhere : {true, false}) {
    const Result want = train_net(*group, {.stage = 0, .seed = 5}, spare_everywhere);
    for (const int stage : {1, 2, 3}) {
      for (const bool overlap : {true, false}) {
        CAPTURE(stage, overlap, spare_everywhere);
        const DataParallelOptions options{.stage = stage, .overlap = overlap, .seed = 5};
        const Result got = train_net(*group, options, spare_everywhere);
        check_close(got, want);
        const bool reached = spare_everywhere || group->rank() % 2 == 0;
        CHECK(got.unused == (reached ? std::vector<std::string>{}
                                     : std::vector<std::string>{"spare.linear.bias"}));
      }
    }
  }
}

TEST_CASE("a loop of one's own over fully_shard has the bits of DataParallel") {
  const auto group = world().group();
  const auto run_loop = [&](int stage) {
    Context context(small_context(1));
    const auto model = models::make_language_model(tiny_model());
    for (Module* block : model->blocks()) {
      comm::fully_shard(*block, context, *group, {.stage = stage, .seed = 3});
    }
    comm::fully_shard(*model, context, *group, {.stage = stage, .seed = 3});
    optim::AdamW optimizer(comm::optim_shards(*model), {});
    for (int step = 0; step < 3; ++step) {
      optimizer.prepare(context, step, 1e-2f);
      const auto ids = rand_int<int32_t>(kLength, uint64_t(step * 10 + group->rank()), 0, 60);
      const Tensor batch = from_host<int32_t>(context, ids, {1, kLength});
      backward(model->loss(batch, batch));
      comm::clip_grad_norm(*model, 1);
      optimizer.step();
      optimizer.zero_grad();
    }
    std::vector<float> values;
    comm::data_parallel_of(*model).full_state([&](const Parameter&, const View& view) {
      values.insert(values.end(), view.as<float>(), view.as<float>() + view.numel());
    });
    return values;
  };
  const std::vector<float> want = run_loop(0);
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    const std::vector<float> got = run_loop(stage);
    // The order of units is the same in every stage, so parameters can be compared one by one.
    CHECK(same_bits(got, want));
  }
}

TEST_CASE("without synchronisation gradients stay local, and whole, in every stage") {
  const auto group = world().group();
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Context context(small_context(1));
    Root<Inner> root;
    Inner& net = root.net;
    DataParallel parallel(root, {&net}, context, *group, {.stage = stage, .seed = 1});
    const Tensor x = full(context, {1, 40}, DType::kF32, group->rank() + 1);
    const auto pass = [&] { backward(sum(net.forward(x))); };
    parallel.set_no_sync(true);
    pass();
    pass();
    const Tensor local = net.linear.bias->value.grad();
    if (group->size() > 1 || stage > 0) {
      CHECK(contains(message_of<ConfigError>([&] { parallel.finish_gradients(); }), "last"));
    }
    REQUIRE(local.defined());
    const float twice = to_host<float>(local)[0];
    parallel.set_no_sync(false);
    pass();
    parallel.finish_gradients();
    // Expects three times the gradient of one backward pass, summed over all ranks.
    float want = 0;
    for (const std::string& one : group->all_gather_bytes(cat(twice)))
      want += std::stof(one) * 1.5f;
    CHECK(full_gradient(parallel, *group, *net.linear.bias)[0] == Approx(want).epsilon(1e-4));
  }
}

TEST_CASE("parameters exist whole only while they are in use, or unsharded by hand") {
  const auto group = world().group();
  Context context(small_context(1));
  Root<Outer> root;
  Outer& net = root.net;
  DataParallel parallel(root, {&net.inner, &net}, context, *group, {.stage = 3, .seed = 1});
  const auto use = [&] { net.after.forward(full(context, {1, 40}, DType::kF32, 1)); };
  const std::string message = message_of<InternalError>(use);
  CHECK(contains(message, "after"));
  CHECK(contains(message, "has no memory"));
  parallel.unshard();
  use();
  parallel.reshard();
  CHECK_FALSE(message_of<InternalError>(use).empty());
  parallel.unit(net).unshard();
  use();
  CHECK_FALSE(message_of<InternalError>([&] { net.inner.linear.bias->value.view(); }).empty());
  parallel.reshard();
}

TEST_CASE("a sharded parameter knows its part; whole values come and go") {
  const auto group = world().group();
  for (const int stage : {0, 1, 3}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(stage, dtype_name(dtype));
      Context context(small_context(1));
      Net net;
      DataParallel parallel(net, net.units(), context, *group,
                            {.compute = dtype, .stage = stage, .seed = 1});
      int64_t mine = 0;
      for (const Parameter* parameter : net.parameters()) {
        const ShardedParameter sharded(parallel, *parameter);
        const comm::ElementRange part = sharded.local_range();
        CHECK(part.begin + part.count <= parameter->numel());
        mine += part.count;
        // The initial values must equal those on one rank.
        Parameter& other = *const_cast<Parameter*>(parameter);
        std::vector<float> want(size_t(parameter->numel()));
        other.write_initial(context.exec(), 1, 0, make_view(want.data(), parameter->shape));
        if (parameter->trainable || dtype == DType::kF32) {
          CHECK(same_bits(to_host<float>(parallel.full_tensor(*parameter)), want));
        }
      }
      int64_t all = 0, total = 0;
      for (const std::string& one : group->all_gather_bytes(cat(mine))) all += std::stoll(one);
      for (const Parameter* parameter : net.parameters()) total += parameter->numel();
      if (stage == 3) CHECK(all == total);

      int64_t asked = 0;
      parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
        const int64_t first = first_row * (parameter.numel() / parameter.shape[0]);
        asked += rows.numel();
        for (int64_t i = 0; i < rows.numel(); ++i) {
          rows.as<float>()[i] = float(parameter.numel() % 97) + float((first + i) % 128);
        }
      });
      // load() asks for this rank's elements and may ask for the rest of the first and last row of
      // each parameter. A row has at most 64 elements.
      CHECK(asked <= mine + 2 * 64 * int64_t(net.parameters().size()));
      parallel.full_state([&](const Parameter& parameter, const View& values) {
        CHECK(first_difference(values.as<float>(), values.numel(), [&](int64_t i) {
                return float(parameter.numel() % 97) + float(i % 128);
              }) == -1);
      });
      parallel.unshard();
      const Tensor weight = cast(net.spare.linear.weight.value, DType::kF32);
      CHECK(to_host<float>(weight)[5] == float(1600 % 97) + 5);
    }
  }
}

TEST_CASE("what ranks hold of a parameter is what its placements say, and can be written") {
  const auto group = world().group();
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Context context(small_context(1));
    Net net;
    for (Module* unit : net.units()) {
      comm::fully_shard(*unit, context, *group, {.compute = DType::kBF16, .stage = stage});
    }
    comm::fully_shard(net, context, *group, {.compute = DType::kBF16, .stage = stage});
    for (const ShardedParameter& sharded : comm::sharded_parameters(net)) {
      CAPTURE(sharded.name());
      if (!sharded.parameter().trainable) continue;
      const bool is_sharded = stage > 0;  // for other placements, see placements_ranks.cpp

      // Ranges of consecutive ranks are adjacent and together cover the parameter.
      const comm::ElementRange mine = sharded.local_range();
      int64_t end = 0;
      for (const std::string& one : group->all_gather_bytes(cat(mine.begin, ' ', mine.count))) {
        std::istringstream text(one);
        comm::ElementRange range;
        text >> range.begin >> range.count;
        if (!is_sharded) {
          end = range.begin + range.count;
        } else if (range.count > 0) {
          CHECK(range.begin == end);
          end += range.count;
        }
      }
      CHECK(end == sharded.parameter().numel());

      const Tensor local = sharded.local();
      REQUIRE(local.shape() == Shape{mine.count});
      std::vector<float> values(size_t(mine.count));
      for (size_t i = 0; i < values.size(); ++i) values[i] = float((mine.begin + int64_t(i)) % 251);
      context.copy(local.data(), values.data(), local.bytes());
      sharded.local_changed();
      const std::vector<float> whole = to_host<float>(sharded.full());
      CHECK(first_difference(whole.data(), int64_t(whole.size()),
                             [](int64_t i) { return float(i % 251); }) == -1);
      comm::data_parallel_of(net).unshard();  // bf16 can represent these integers exactly
      CHECK(same_bits(to_host<float>(cast(sharded.parameter().value, DType::kF32)), whole));
      comm::data_parallel_of(net).reshard();
      CHECK_FALSE(sharded.local_grad().defined());
    }
  }
}

TEST_CASE("values that are not a parameter's are refused by its name") {
  const auto group = world().group();
  Context context(small_context(1));
  Net net;
  DataParallel parallel(net, net.units(), context, *group, {.stage = 3});
  const Parameter& parameter = net.spare.linear.weight;
  const ShardedParameter sharded(parallel, parameter);
  std::vector<float> values(size_t(parameter.numel()));
  CHECK(contains(message_of<ShapeError>(
                     [&] { sharded.distribute(make_view(values.data(), {parameter.numel()})); }),
                 "spare.linear.weight: the values are [1600], expected [40,40]"));
  std::vector<int32_t> ids(values.size());
  CHECK(contains(
      message_of<DTypeError>([&] { sharded.distribute(make_view(ids.data(), parameter.shape)); }),
      "the values are int32, expected fp32"));
}

TEST_CASE("a context may be made before its group, and goes after it") {
  Context context(small_context(1));
  const auto group = world().group({.name = "later"});
  Net net;
  for (Module* unit : net.units()) comm::fully_shard(*unit, context, *group, {.stage = 3});
  comm::fully_shard(net, context, *group, {.stage = 3});
  comm::data_parallel_of(net).unshard();
  comm::data_parallel_of(net).reshard();
}

TEST_CASE("explicit prefetch lists replace the recorded order, right or wrong") {
  const auto group = world().group();
  const auto run_net = [&](bool lists) {
    Context context(small_context(1));
    Net net;
    DataParallel parallel(net, net.units(), context, *group, {.stage = 3, .prefetch = 0});
    if (lists) {
      parallel.unit(net).forward_prefetch = {&parallel.unit(net.first), &parallel.unit(net.spare)};
      parallel.unit(net.spare).backward_prefetch = {&parallel.unit(net.second),
                                                    &parallel.unit(net.first)};
    }
    std::vector<float> losses;
    for (int step = 0; step < 2; ++step) {
      const Tensor loss = net.loss(full(context, {2, 40}, DType::kF32, 0.1), true);
      losses.push_back(to_host<float>(loss)[0]);
      backward(loss);
      parallel.finish_gradients();
      zero_grad(parallel.shards());
    }
    return losses;
  };
  CHECK(same_bits(run_net(true), run_net(false)));
}

TEST_CASE("ranks whose models, seeds or options differ are named before training") {
  const auto group = world().group();
  if (group->size() == 1) return;
  Context context(small_context(1));
  Net net;
  const uint64_t seed = group->rank() == group->size() - 1 ? 2 : 1;
  const std::string message = message_of<CommError>(
      [&] { DataParallel parallel(net, net.units(), context, *group, {.seed = seed}); });
  CHECK(contains(message, "seed 1"));
  CHECK(contains(message, cat("rank ", group->size() - 1)));
}

TEST_CASE("options of data parallelism that do not go together are errors") {
  const auto group = world().group();
  Context context(small_context(1));
  Net net;
  const auto message = [&](const comm::ShardGroups& groups, const DataParallelOptions& options) {
    return message_of<ConfigError>(
        [&] { DataParallel parallel(net, net.units(), context, groups, options); });
  };
  const comm::ShardGroups all{.shard = group.get()};
  CHECK(contains(message(all, {.stage = 4}), "expected 0 to 3"));
  CHECK(contains(message(all, {.reduce = DType::kF16}), "expected fp32 or bf16"));
  CHECK(contains(message(all, {.reduce = DType::kBF16, .reproducible = true}),
                 group->size() == 3 ? "power of two" : "fp32 gradients"));
  CHECK(contains(message({.shard = group.get(), .replicate = group.get()}, {.stage = 0}),
                 "hybrid sharding needs stage 1"));
  CHECK(contains(
      message(all, {.reshard_after_forward = comm::ReshardAfterForward::kSmallGroup, .stage = 3}),
      "found none"));
  if (group->size() == 3) {
    CHECK(contains(message(all, {.reproducible = true}), "power of two"));
  }
  comm::fully_shard(net.first, context, *group, {.stage = 3});
  CHECK(contains(
      message_of<ConfigError>([&] { comm::fully_shard(net, context, *group, {.stage = 2}); }),
      "stage"));
}

}  // namespace shale::test
