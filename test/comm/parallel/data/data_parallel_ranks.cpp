// Compares N ranks with one rank: gradients, losses and trained parameters.
#include "shale/comm/parallel/data/data_parallel.h"

#include <cmath>
#include <functional>

#include "shale/comm/sums/ordered_sum.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::ProcessGroup;

constexpr int64_t kGlobalBatch = 12;  // 1, 2, 3 and 4 ranks divide 12

// The orders of additions differ. This allows a few f32 roundings of gradients and losses near 1,
// through four AdamW steps, which divide by the gradient's magnitude.
void check_close(const Trained& got, const Trained& want) {
  CHECK(max_error(to_f64(got.gradients), to_f64(want.gradients)) <= 1e-6);
  CHECK(max_error(to_f64(got.losses), to_f64(want.losses)) <= 1e-5);
  CHECK(max_error(to_f64(got.norms), to_f64(want.norms)) <= 1e-4);
}

}  // namespace

TEST_CASE("N ranks give the losses of one rank at the same global batch, accumulating or not") {
  const auto group = world().group();
  const Trained want = train(alone(), {.micro_batch = kGlobalBatch});
  for (const int64_t micro_batch : {1, 3}) {
    if (kGlobalBatch % (micro_batch * group->size()) != 0) continue;
    CAPTURE(micro_batch);
    check_close(train(*group, {.micro_batch = micro_batch}), want);
  }
  check_close(train(*group, {.micro_batch = kGlobalBatch / group->size()}), want);
}

TEST_CASE("dropout masks do not depend on the number of ranks or on the micro-batch") {
  const auto group = world().group();
  const Trained want = train(alone(), {.micro_batch = kGlobalBatch, .dropout = 0.2f});
  check_close(train(*group, {.micro_batch = 1, .dropout = 0.2f}), want);
}

TEST_CASE("the same run twice gives the same bits") {
  const auto group = world().group();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype_name(dtype));
    const TrainOptions options{.micro_batch = 1, .parallel = {.compute = dtype}};
    CHECK(same(train(*group, options), train(*group, options)));
  }
}

TEST_CASE("recomputation changes no bit, with dropout and accumulation") {
  const auto group = world().group();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype_name(dtype));
    const Trained want =
        train(*group, {.micro_batch = 1, .dropout = 0.2f, .parallel = {.compute = dtype}});
    for (const Recompute level : {Recompute::kSelective, Recompute::kFull}) {
      CAPTURE(int(level));
      CHECK(same(want, train(*group, {.micro_batch = 1,
                                      .dropout = 0.2f,
                                      .recompute = level,
                                      .parallel = {.compute = dtype}})));
    }
  }
}

TEST_CASE("all ranks hold the same bits after training") {
  const auto group = world().group();
  const Trained mine = train(*group, {});
  const std::string_view bytes(reinterpret_cast<const char*>(mine.parameters.data()),
                               mine.parameters.size() * sizeof(float));
  for (const std::string& other : group->all_gather_bytes(bytes)) CHECK(other == bytes);
}

namespace {

// A model with two branches; a step may use only one of them.
struct Branches : Module {
  Branches()
      : left(this, "left", 4, 4, Init::normal(1)), right(this, "right", 4, 4, Init::normal(1)) {}
  nn::Linear left, right;
};

}  // namespace

TEST_CASE("ranks that use different parameters agree: unused ones count as gradient zero") {
  const auto group = world().group();
  Context context(small_context(1));
  Branches net;
  DataParallel parallel(net, {&net.left, &net.right}, context, *group, {.seed = 1});
  const Tensor x = full(context, {1, 4}, DType::kF32, 1);
  const bool uses_left = group->rank() % 2 == 0;
  // The second step would show values that the first one left.
  for (int step = 0; step < 2; ++step) {
    parallel.begin_backward(true);
    backward(sum((uses_left ? net.left : net.right).forward(x)));
    parallel.finish_gradients();
    const auto users = [&](int parity) { return float((group->size() + 1 - parity) / 2); };
    CHECK(to_host<float>(net.left.bias->value.grad())[0] == users(0));
    CHECK(to_host<float>(net.right.bias->value.grad())[0] == users(1));
    zero_grad(parallel.shards());
  }
}

TEST_CASE("a parameter that backward passes without a gradient is reduced as zero") {
  struct Stream : Module {
    Stream() : norm(this, "norm", 4, 1e-5f) {}
    nn::LayerNorm norm;
  };
  const auto group = world().group();
  Context context(small_context(1));
  Stream net;
  DataParallel parallel(net, {&net.norm}, context, *group, {.seed = 1});
  // Makes the reduction finish before backward returns, so that no later call can correct a wrong
  // result.
  leaf_state(net.norm.bias.value).ready_hooks.push_back([&] { group->barrier("test"); });
  for (const bool all_use_norm : {true, false}) {
    const auto [y, stream] = net.norm.forward_stream(random_leaf(context, {2, 4}, 1));
    const bool uses_norm = all_use_norm || group->rank() > 0;
    parallel.begin_backward(true);
    backward(sum(uses_norm ? y : stream));
    parallel.finish_gradients();
    const int users = group->size() - (all_use_norm ? 0 : 1);
    // Each rank that uses the norm has two rows.
    CHECK(to_host<float>(net.norm.bias.value.grad())[0] == float(2 * users));
    zero_grad(parallel.shards());
  }
}

TEST_CASE("without reduction gradients stay local and accumulate") {
  const auto group = world().group();
  Context context(small_context(1));
  Branches net;
  DataParallel parallel(net, {&net.left}, context, *group, {.seed = 1});
  const Tensor x = full(context, {1, 4}, DType::kF32, 1);
  const auto accumulate = [&](bool reduce) {
    parallel.begin_backward(reduce);
    backward(scale(sum(net.left.forward(x)), float(group->rank() + 1)));
  };
  accumulate(false);
  CHECK(to_host<float>(net.left.bias->value.grad())[0] == float(group->rank() + 1));
  accumulate(true);
  parallel.finish_gradients();
  const int n = group->size();
  // Two passes: 2 (1 + ... + n).
  CHECK(to_host<float>(net.left.bias->value.grad())[0] == float(n * (n + 1)));
}

TEST_CASE("a step whose last backward did not reduce is an error, not a silent divergence") {
  const auto group = world().group();
  if (group->size() == 1) return;  // one rank has nothing to reduce
  Context context(small_context(1));
  Branches net;
  DataParallel parallel(net, {}, context, *group, {.seed = 1});
  parallel.begin_backward(false);
  backward(sum(net.left.forward(full(context, {1, 4}, DType::kF32, 1))));
  optim::Sgd optimizer(parallel.shards(), {});
  optimizer.prepare(context, 0, 0.1f);
  const std::vector<std::function<void()>> calls = {[&] { optimizer.step(); },
                                                    [&] { parallel.clip_grad_norm(1); },
                                                    [&] { parallel.finish_gradients(); }};
  for (const auto& call : calls) CHECK(contains(message_of<ConfigError>(call), "last = false"));
  backward(sum(net.left.forward(full(context, {1, 4}, DType::kF32, 1))));
  optimizer.step();
}

TEST_CASE("a model can be in data parallelism once at a time, and again afterwards") {
  const auto group = world().group();
  Context context(small_context(1));
  Branches net;
  {
    DataParallel parallel(net, {}, context, *group, {.seed = 1});
    CHECK(contains(message_of<InternalError>(
                       [&] { DataParallel twice(net, {}, context, *group, {.seed = 1}); }),
                   "left.weight"));
  }
  DataParallel again(net, {}, context, *group, {.seed = 1});
  again.begin_backward(true);
  backward(sum(net.left.forward(full(context, {1, 4}, DType::kF32, 1))));
  again.finish_gradients();
  CHECK(to_host<float>(net.left.bias->value.grad())[0] == float(group->size()));
}

TEST_CASE("ordered_sum is one tree over micro-batches, whatever the number of ranks") {
  const auto group = world().group();
  // Twelve terms whose sum depends on the order of additions. With n ranks, rank r has the terms r,
  // n + r, 2 n + r and so on.
  std::vector<double> leaves;
  for (int i = 0; i < 12; ++i) leaves.push_back(order_value<double>(1, i));
  std::vector<double> mine;
  for (int j = 0; j * group->size() + group->rank() < 12; ++j) {
    mine.push_back(leaves[size_t(j * group->size() + group->rank())]);
  }
  CHECK(comm::ordered_sum(*group, mine) == comm::ordered_sum(alone(), leaves));
  CHECK(comm::ordered_sum(*group, {}) == 0);
}

}  // namespace shale::test
