// Tests steps with several backward passes, graphs and models, in every stage, reproducible or not.
#include <bit>
#include <functional>

#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::DataParallelOptions;

constexpr int64_t kWidth = 40;  // a rank's shard begins inside a weight

struct Layer : Module {
  Layer(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)),
        linear(this, "linear", kWidth, kWidth, Init::normal(0.15f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [&](const Tensor& in) {
      if (on_forward) on_forward();
      return gelu(linear.forward(in));
    });
  }
  nn::Linear linear;
  std::function<void()> on_forward;
};

// A model with two losses that share a trunk; each loss uses the trunk twice.
struct TwoHeads : Module {
  TwoHeads() : trunk(this, "trunk"), a(this, "a"), b(this, "b") {}
  Tensor output(const Tensor& x, Layer& head) {
    return run(x, [&](const Tensor& in) { return head.forward(trunk.forward(trunk.forward(in))); });
  }
  Tensor loss(const Tensor& x, Layer& head) { return sum(output(x, head)); }
  Layer trunk, a, b;
  std::vector<Module*> units() { return {&trunk, &a, &b}; }
};

// A model, with the batch of this rank.
struct Run {
  Run(comm::ProcessGroup& ranks, const DataParallelOptions& options)
      : group(ranks),
        context(small_context(1)),
        parallel(net, net.units(), context, group, options) {}

  Tensor batch(int seed) {
    return from_host<float>(context, randn<float>(2 * kWidth, uint64_t(10 * seed + group.rank())),
                            {2, kWidth});
  }
  Tensor loss(Layer& head, int seed) { return net.loss(batch(seed), head); }
  std::vector<float> gradient() {
    parallel.finish_gradients();
    complete_gradients(parallel.shards());
    std::vector<float> all;
    for (const Parameter* parameter : net.parameters()) {
      const auto one = full_gradient(parallel, group, *parameter);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  comm::ProcessGroup& group;
  Context context;
  TwoHeads net;
  DataParallel parallel;
};

// Calls check(options) for all stages, and also for reproducible runs if the number of ranks allows
// them.
void for_all_stages(const std::function<void(const DataParallelOptions&)>& check) {
  const bool power_of_two = std::has_single_bit(unsigned(world().size()));
  for (const bool reproducible : {false, true}) {
    if (reproducible && !power_of_two) continue;
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage, reproducible);
      check({.stage = stage, .reproducible = reproducible, .seed = 7});
    }
  }
}

// A loss is one head of the model, applied to one batch.
struct Loss {
  bool of_a;
  int seed;
};

// Runs each loss alone and returns the sum of their gradients in f64.
std::vector<double> sum_of(comm::ProcessGroup& group, const std::vector<Loss>& losses) {
  std::vector<double> want;
  for (const Loss& loss : losses) {
    Run run(group, {.stage = 0, .seed = 7});
    backward(run.loss(loss.of_a ? run.net.a : run.net.b, loss.seed));
    const std::vector<double> one = to_f64(run.gradient());
    want.resize(one.size());
    for (size_t i = 0; i < one.size(); ++i) want[i] += one[i];
  }
  return want;
}

// Allows the roundings of f32 sums of a few terms, in any order of additions.
void check_close(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  CHECK(max_error(to_f64(got), want) <= 16 * ulp<float>() * max_abs(want));
}

}  // namespace

TEST_CASE("several backwards in a step add up, with the same bits in every stage") {
  const auto group = world().group();
  const std::vector<Loss> losses = {{true, 1}, {false, 2}, {true, 3}};
  const std::vector<double> want = sum_of(*group, losses);
  for (const bool all_forwards_first : {false, true}) {
    std::vector<float> of_stage_0;
    for_all_stages([&](const DataParallelOptions& options) {
      CAPTURE(all_forwards_first);
      Run run(*group, options);
      std::vector<Tensor> waiting;
      for (const Loss& loss : losses) {
        waiting.push_back(run.loss(loss.of_a ? run.net.a : run.net.b, loss.seed));
        if (!all_forwards_first) backward(std::exchange(waiting.back(), Tensor()));
      }
      if (all_forwards_first) {
        for (const size_t i : {1, 0, 2}) backward(std::exchange(waiting[i], Tensor()));
      }
      const std::vector<float> got = run.gradient();
      check_close(got, want);
      if (options.stage == 0) of_stage_0 = got;
      // On one rank, stage 0 reduces nothing: backward adds the gradient of each use directly to
      // the parameter's gradient.
      const bool adds_uses = group->size() == 1 && !options.reproducible;
      if (options.stage == 1 && adds_uses) of_stage_0 = got;
      CHECK(same_bits(got, of_stage_0));
      // The second round checks that zero_grad() leaves nothing behind.
      zero_grad(run.parallel.shards());
      for (const Loss& loss : losses) {
        backward(run.loss(loss.of_a ? run.net.a : run.net.b, loss.seed));
      }
      check_close(run.gradient(), want);
    });
  }
}

TEST_CASE("losses of several micro-batches each add up") {
  const auto group = world().group();
  const std::vector<double> want = sum_of(*group, {{true, 1}, {true, 2}, {false, 3}, {false, 4}});
  for_all_stages([&](const DataParallelOptions& options) {
    Run run(*group, options);
    const auto pass = [&](Layer& head, int seed, bool last) {
      run.parallel.begin_backward(last);
      backward(run.loss(head, seed));
    };
    pass(run.net.a, 1, false);
    pass(run.net.a, 2, true);
    pass(run.net.b, 3, false);
    pass(run.net.b, 4, true);
    check_close(run.gradient(), want);
  });
}

TEST_CASE("local gradients after a sum are added to it when they are reduced, or dropped") {
  const auto group = world().group();
  for (const bool dropped : {false, true}) {
    const std::vector<Loss> all = {{true, 1}, {false, 2}, {true, 3}};
    const std::vector<double> want = sum_of(*group, dropped ? std::vector{all.back()} : all);
    for_all_stages([&](const DataParallelOptions& options) {
      if (options.reproducible) return;  // reproducible runs refuse local gradients
      CAPTURE(dropped);
      Run run(*group, options);
      backward(run.loss(run.net.a, 1));
      run.parallel.set_no_sync(true);
      backward(run.loss(run.net.b, 2));
      run.parallel.set_no_sync(false);
      if (dropped) zero_grad(run.parallel.shards());
      backward(run.loss(run.net.a, 3));
      check_close(run.gradient(), want);
    });
  }
}

TEST_CASE("a backward leaves other models of its context alone") {
  const auto group = world().group();
  for_all_stages([&](const DataParallelOptions& options) {
    Run run(*group, options);
    TwoHeads other;
    DataParallel parallel(other, other.units(), run.context, *group, options);
    const Tensor mine = run.loss(run.net.a, 1), waiting = run.loss(run.net.b, 2);
    backward(other.loss(run.batch(3), other.a));  // precedes any backward of the first model
    backward(mine);
    const std::vector<std::string> unused = run.parallel.unused_parameters();
    CHECK(unused == std::vector<std::string>{"b.linear.weight", "b.linear.bias"});
    const std::vector<float> before = run.gradient();
    backward(other.loss(run.batch(4), other.b));
    CHECK(run.parallel.unused_parameters() == unused);
    CHECK(same_bits(run.gradient(), before));
    CHECK(other.a.linear.weight.value.grad().defined() == (options.stage == 0));
    backward(waiting);
    check_close(run.gradient(), sum_of(*group, {{true, 1}, {false, 2}}));
    parallel.finish_gradients();
  });
}

TEST_CASE("micro-batches of a reproducible run that make no tree are refused before the last one") {
  const auto group = world().group();
  if (!std::has_single_bit(unsigned(group->size()))) return;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Run run(*group, {.stage = stage, .reproducible = true, .seed = 7});
    for (const int seed : {1, 2}) {
      run.parallel.begin_backward(false);
      backward(run.loss(run.net.a, seed));
    }
    const std::string message = message_of<ConfigError>([&] { run.parallel.begin_backward(true); });
    CHECK(contains(message, "3 micro-batches"));
    CHECK(contains(message, "power of two"));
    run.parallel.begin_backward(false);
    backward(run.loss(run.net.a, 3));
    run.parallel.begin_backward(true);
    backward(run.loss(run.net.a, 4));
    check_close(run.gradient(), sum_of(*group, {{true, 1}, {true, 2}, {true, 3}, {true, 4}}));
  }
}

TEST_CASE("a body that throws leaves no parameters gathered, and the next step is as ever") {
  const auto group = world().group();
  for_all_stages([&](const DataParallelOptions& options) {
    Run run(*group, options), untroubled(*group, options);
    run.net.a.on_forward = [] { throw OutOfMemoryError("too large"); };
    CHECK_FALSE(message_of<OutOfMemoryError>([&] { run.loss(run.net.a, 1); }).empty());
    if (options.stage == 3) {
      for (Module* unit : run.net.units()) {
        const Parameter& weight = *unit->parameters().front();
        CHECK_FALSE(message_of<InternalError>([&] { weight.value.view(); }).empty());
      }
    }
    run.net.a.on_forward = nullptr;
    for (int step = 0; step < 2; ++step) {
      zero_grad(run.parallel.shards());
      zero_grad(untroubled.parallel.shards());
      backward(run.loss(run.net.a, step));
      backward(untroubled.loss(untroubled.net.a, step));
      CHECK(same_bits(run.gradient(), untroubled.gradient()));
    }
  });
}

TEST_CASE("a loss may be written in place on a module's output, in every stage") {
  const auto group = world().group();
  std::vector<float> of_stage_0;
  for_all_stages([&](const DataParallelOptions& options) {
    Run run(*group, options);
    Tensor logits = run.net.output(run.batch(1), run.net.a);
    const std::vector<int32_t> ids = rand_int<int32_t>(2, 1, 0, kWidth - 1);
    backward(cross_entropy_(logits, from_host<int32_t>(run.context, ids, {2}), kWidth));
    const std::vector<float> got = run.gradient();
    if (options.stage == 0) of_stage_0 = got;
    CHECK(max_abs(to_f64(got)) > 0);
    CHECK(same_bits(got, of_stage_0));
  });
}

TEST_CASE("mean_over_ranks gives the gradient of the mean over all samples, however they lie") {
  const auto group = world().group();
  const int n = group->size();
  const auto row = [](int index) { return randn<float>(kWidth, uint64_t(100 + index)); };
  const auto rows = [&](Context& context, int first, int count) {
    std::vector<float> values;
    for (int i = first; i < first + count; ++i) {
      const std::vector<float> one = row(i);
      values.insert(values.end(), one.begin(), one.end());
    }
    return from_host<float>(context, values, {count, kWidth});
  };
  const int all = n * (n + 1) / 2;  // rank r has r + 1 samples
  const auto loss_of = [](TwoHeads& net, const Tensor& x) { return mean(net.output(x, net.a)); };
  Run one(alone(), {.stage = 0, .seed = 7});
  backward(loss_of(one.net, rows(one.context, 0, all)));
  const std::vector<double> want = to_f64(one.gradient());
  for_all_stages([&](const DataParallelOptions& options) {
    Run run(*group, options);
    const int mine = group->rank() + 1;
    const Tensor x = rows(run.context, mine * (mine - 1) / 2, mine);
    backward(run.parallel.mean_over_ranks(loss_of(run.net, x), mine));
    check_close(run.gradient(), want);
    const std::string message = message_of<ConfigError>(
        [&] { run.parallel.mean_over_ranks(full(run.context, {}, DType::kF32, 1), 0); });
    CHECK(contains(message, "expected more than 0"));
  });
}

TEST_CASE("units that come too late or differ where they must not are refused") {
  const auto group = world().group();
  for_all_stages([&](const DataParallelOptions& options) {
    Context context(small_context(1));
    TwoHeads net, second;
    comm::fully_shard(net, context, *group, options);
    const std::string message =
        message_of<ConfigError>([&] { comm::fully_shard(net.a, context, *group, options); });
    CHECK(contains(message, "a was sharded after root"));
    CHECK(contains(message, "inner modules first"));

    comm::fully_shard(second.a, context, *group, options);
    DataParallelOptions changed = options;
    changed.prefetch = 2;
    CHECK(contains(
        message_of<ConfigError>([&] { comm::fully_shard(second, context, *group, changed); }),
        "prefetch"));
    changed = options;
    changed.offload_share = 0.5;
    CHECK(contains(
        message_of<ConfigError>([&] { comm::fully_shard(second, context, *group, changed); }),
        "offload_share"));
  });
}

TEST_CASE("memory of the group is given back when the model that was sharded over it goes") {
  const auto group = world().group();
  if (group->size() == 1) return;  // with one rank, data parallelism provides no memory
  for_all_stages([&](const DataParallelOptions& options) {
    Context context(small_context(1));
    const int64_t before = context.allocator().stats().reserved;
    {
      TwoHeads net;
      comm::fully_shard(net, context, *group, options);
      CHECK(context.allocator().stats().reserved > before);
    }
    CHECK(context.allocator().stats().reserved == before);
  });
}

TEST_CASE("models of one class that nobody gave a seed begin with other values") {
  const auto group = world().group();
  Context context(small_context(1));
  TwoHeads first, second, third;
  for (TwoHeads* model : {&first, &second, &third}) {
    DataParallelOptions options{.stage = 3};
    if (model == &third) options.seed = 0;
    comm::fully_shard(model->a, context, *group, options);
    comm::fully_shard(*model, context, *group, options);
  }
  const auto values = [](Module& model) {
    std::vector<float> all;
    comm::data_parallel_of(model).full_state([&](const Parameter&, const View& view) {
      all.insert(all.end(), view.as<float>(), view.as<float>() + view.numel());
    });
    return all;
  };
  CHECK_FALSE(same_bits(values(first), values(second)));
  CHECK(same_bits(values(first), values(third)));  // both have seed 0
}

TEST_CASE("ranks have dropout masks of their own") {
  const auto group = world().group();
  Run run(*group, {.stage = 2, .seed = 7});
  const Tensor x = full(run.context, {2, 500}, DType::kF32, 1);
  const Tensor y = dropout(x, 0.5f, 1);
  std::vector<float> all(static_cast<size_t>(y.numel() * group->size()));
  group->host().all_gather(y, make_view(all.data(), {y.numel() * group->size()}));
  for (int rank = 1; rank < group->size(); ++rank) {
    const auto begin = all.begin() + rank * y.numel();
    CHECK_FALSE(std::equal(begin, begin + y.numel(), all.begin()));
  }
}

}  // namespace shale::test
