// N ranks against one: gradients, losses and trained parameters.
#include "comm/data_parallel.h"

#include <cmath>

#include "comm/ordered_sum.h"
#include "models/language_model.h"
#include "runtime/autograd/tape.h"
#include "runtime/nn/layers.h"
#include "runtime/ops/elementwise.h"
#include "runtime/ops/reduce.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/tensor_impl.h"
#include "test/mpi/harness.h"
#include "test/support/numbers.h"
#include "test/support/op_check.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::ProcessGroup;

// 12 sequences a step: 1, 2, 3 and 4 ranks divide it.
constexpr int64_t kGlobalBatch = 12, kLength = 10, kSteps = 4;

models::LanguageModelConfig tiny() {
  models::LanguageModelConfig config;
  config.layers = 3;
  config.width = 32;
  config.heads = 2;
  config.vocab = 61;
  config.padded_vocab = 64;
  config.context = kLength;
  return config;
}

struct TrainOptions {
  int64_t micro_batch = 1;
  bool overlap = true;
  DType dtype = DType::kF32;
  float dropout = 0;
};

struct Trained {
  std::vector<float> losses;
  std::vector<float> norms;
  std::vector<float> first_gradient;  // of the first block's attention weight, at step 0
  std::vector<float> parameters;      // all, after the last step
};

// What train_lm does, on the ranks of `group`.
Trained train(ProcessGroup& group, const TrainOptions& options) {
  Context context(small_context(1));
  models::LanguageModelConfig config = tiny();
  config.dropout = options.dropout;
  const auto model = models::make_language_model(config);
  DataParallel parallel(*model, model->blocks(), context, group,
                        {.compute = options.dtype, .overlap = options.overlap, .seed = 3});
  optim::AdamW optimizer(parallel.shards(), {});
  const int64_t micros = kGlobalBatch / (options.micro_batch * group.size());
  Trained result;
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.prepare(context, step, 1e-2f);
    std::vector<double> sums;
    for (int64_t j = 0; j < micros; ++j) {
      const int64_t first = (j * group.size() + group.rank()) * options.micro_batch;
      context.update_step([&](StepState& state) {
        state.grad_scale = 1.0f / (kGlobalBatch * kLength);
        state.sample = uint64_t(first);
      });
      const std::vector<int32_t> all =
          rand_int<int32_t>(kGlobalBatch * (kLength + 1), uint64_t(step), 0, 60);
      std::vector<int32_t> ids, targets;
      for (int64_t b = first; b < first + options.micro_batch; ++b) {
        const auto row = all.begin() + b * (kLength + 1);
        ids.insert(ids.end(), row, row + kLength);
        targets.insert(targets.end(), row + 1, row + kLength + 1);
      }
      const Shape shape = {options.micro_batch, kLength};
      const Tensor loss = model->loss(from_host<int32_t>(context, ids, shape),
                                      from_host<int32_t>(context, targets, shape));
      parallel.begin_backward(j + 1 == micros);
      backward(loss);
      sums.push_back(to_host<float>(loss)[0]);
    }
    parallel.finish_gradients();
    if (step == 0) {
      const Parameter* weight = model->find_parameter("h.0.attn.c_attn.weight");
      result.first_gradient = to_host<float>(weight->value.grad());
    }
    optim::clip_grad_norm(context, parallel.shards(), 1);
    optimizer.step();
    optimizer.zero_grad();
    result.losses.push_back(float(comm::ordered_sum(group, sums) / (kGlobalBatch * kLength)));
    result.norms.push_back(context.read_step().grad_norm);
  }
  for (const Parameter* parameter : model->parameters()) {
    std::vector<float> values(static_cast<size_t>(parameter->numel()));
    parallel.read(*parameter, make_view(values.data(), parameter->shape));
    result.parameters.insert(result.parameters.end(), values.begin(), values.end());
  }
  return result;
}

bool same(const Trained& a, const Trained& b) {
  return same_bits(a.losses, b.losses) && same_bits(a.norms, b.norms) &&
         same_bits(a.parameters, b.parameters);
}

// Each rank alone: what one rank would do with the whole batch.
std::unique_ptr<ProcessGroup> alone() {
  static const auto everyone = world().group();
  return everyone->split(everyone->rank(), 0, "alone");
}

// Sums in another order: a handful of f32 roundings of gradients and losses of order 1, carried
// through four steps of AdamW, which divides by the gradient's size.
void check_close(const Trained& got, const Trained& want) {
  CHECK(max_error(to_f64(got.first_gradient), to_f64(want.first_gradient)) <= 1e-6);
  CHECK(max_error(to_f64(got.losses), to_f64(want.losses)) <= 1e-5);
  CHECK(max_error(to_f64(got.norms), to_f64(want.norms)) <= 1e-4);
}

}  // namespace

TEST_CASE("N ranks give the losses of one rank at the same global batch, accumulating or not") {
  const auto group = world().group();
  const Trained want = train(*alone(), {.micro_batch = kGlobalBatch});
  for (const int64_t micro_batch : {1, 3}) {
    if (kGlobalBatch % (micro_batch * group->size()) != 0) continue;
    CAPTURE(micro_batch);
    check_close(train(*group, {.micro_batch = micro_batch}), want);
  }
  check_close(train(*group, {.micro_batch = kGlobalBatch / group->size()}), want);
}

TEST_CASE("dropout masks do not depend on the number of ranks or on the micro-batch") {
  const auto group = world().group();
  const Trained want = train(*alone(), {.micro_batch = kGlobalBatch, .dropout = 0.2f});
  check_close(train(*group, {.micro_batch = 1, .dropout = 0.2f}), want);
}

TEST_CASE("the same run twice gives the same bits, with overlap or without") {
  const auto group = world().group();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype_name(dtype));
    const Trained first = train(*group, {.micro_batch = 1, .dtype = dtype});
    CHECK(same(first, train(*group, {.micro_batch = 1, .dtype = dtype})));
    CHECK(same(first, train(*group, {.micro_batch = 1, .overlap = false, .dtype = dtype})));
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

// Two branches; a step may use one of them only.
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
  for (int step = 0; step < 2; ++step) {  // twice, so that old values could shine through
    parallel.begin_backward(true);
    backward(sum((uses_left ? net.left : net.right).forward(x)));
    parallel.finish_gradients();
    const auto users = [&](int parity) { return float((group->size() + 1 - parity) / 2); };
    CHECK(to_host<float>(net.left.bias.value.grad())[0] == users(0));
    CHECK(to_host<float>(net.right.bias.value.grad())[0] == users(1));
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
  // The reduction is over before backward returns, so that nothing can put it right afterwards.
  leaf_state(net.norm.bias.value).ready_hooks.push_back([&] { group->barrier("test"); });
  for (const bool all_use_norm : {true, false}) {
    const auto [y, stream] = net.norm.forward_stream(random_leaf(context, {2, 4}, 1));
    const bool uses_norm = all_use_norm || group->rank() > 0;
    parallel.begin_backward(true);
    backward(sum(uses_norm ? y : stream));
    parallel.finish_gradients();
    const int users = group->size() - (all_use_norm ? 0 : 1);
    CHECK(to_host<float>(net.norm.bias.value.grad())[0] == float(2 * users));  // two rows each
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
  CHECK(to_host<float>(net.left.bias.value.grad())[0] == float(group->rank() + 1));
  accumulate(true);
  parallel.finish_gradients();
  const int n = group->size();
  CHECK(to_host<float>(net.left.bias.value.grad())[0] == float(n * (n + 1)));  // twice 1 + ... + n
}

TEST_CASE("a step whose last backward did not reduce is an error, not a silent divergence") {
  const auto group = world().group();
  if (group->size() == 1) return;  // nothing to reduce
  Context context(small_context(1));
  Branches net;
  DataParallel parallel(net, {}, context, *group, {.seed = 1});
  parallel.begin_backward(false);
  backward(sum(net.left.forward(full(context, {1, 4}, DType::kF32, 1))));
  CHECK(
      contains(message_of<InternalError>([&] { parallel.finish_gradients(); }), "reduce = false"));
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
  CHECK(to_host<float>(net.left.bias.value.grad())[0] == float(group->size()));
}

TEST_CASE("ordered_sum is one tree over micro-batches, whatever the number of ranks") {
  const auto group = world().group();
  // 12 leaves whose sum depends on the order; rank r has leaves j * n + r.
  std::vector<double> leaves;
  for (int i = 0; i < 12; ++i) leaves.push_back(order_value<double>(1, i));
  std::vector<double> mine;
  for (int j = 0; j * group->size() + group->rank() < 12; ++j) {
    mine.push_back(leaves[size_t(j * group->size() + group->rank())]);
  }
  CHECK(comm::ordered_sum(*group, mine) == comm::ordered_sum(*alone(), leaves));
  CHECK(comm::ordered_sum(*group, {}) == 0);
}

}  // namespace shale::test
