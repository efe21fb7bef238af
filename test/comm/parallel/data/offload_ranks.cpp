// Tests the device memory saved by offload. bitwise_gate_ranks.cpp tests that it changes no bit.
#include "shale/runtime/offload/host_tier.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

int64_t bytes(const MemoryStats& stats, MemoryTag tag) {
  return stats.current[size_t(tag)];
}

Trained run(comm::ProcessGroup& group, int stage, const models::StepOffload& offload) {
  TrainOptions options{.micro_batch = 1, .steps = 2};
  options.global_batch = group.size();
  options.parallel = {.compute = DType::kBF16, .stage = stage};
  options.offload = offload;
  return train(group, options);
}

}  // namespace

TEST_CASE("masters and optimizer states leave the device by the share that is offloaded") {
  const auto group = world().group();
  constexpr MemoryTag kTag = MemoryTag::kOptimizer;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    const Trained none = run(*group, stage, {});
    const Trained half = run(*group, stage, {.optimizer = true, .share = 0.5});
    const Trained all = run(*group, stage, {.optimizer = true});
    const int64_t whole = bytes(none.memory, kTag);
    CHECK(whole > 0);
    CHECK(bytes(none.host_memory, kTag) == 0);
    CHECK(bytes(all.memory, kTag) == 0);
    CHECK(bytes(all.host_memory, kTag) == whole);
    CHECK(bytes(half.memory, kTag) + bytes(half.host_memory, kTag) == whole);
    CHECK(bytes(half.host_memory, kTag) >= whole / 2);
    CHECK(bytes(half.memory, kTag) > 0);
  }
}

TEST_CASE("gradients that are offloaded leave nothing on the device between steps") {
  const auto group = world().group();
  constexpr MemoryTag kTag = MemoryTag::kGradient;
  for (const int stage : {2, 3}) {
    CAPTURE(stage);
    const Trained optimizer = run(*group, stage, {.optimizer = true});
    const Trained gradients = run(*group, stage, {.optimizer = true, .gradients = true});
    CHECK(bytes(optimizer.memory, kTag) > 0);
    CHECK(bytes(gradients.memory, kTag) == 0);
    CHECK(bytes(gradients.host_memory, kTag) == bytes(optimizer.memory, kTag));
  }
}

TEST_CASE("parameters that are offloaded leave nothing on the device between their uses") {
  const auto group = world().group();
  constexpr MemoryTag kTag = MemoryTag::kParameter;
  const Trained optimizer = run(*group, 3, {.optimizer = true});
  const Trained parameters = run(*group, 3, {.optimizer = true, .parameters = true});
  // Memory of the bf16 shards: half the memory of the f32 master weights.
  CHECK(bytes(optimizer.memory, kTag) > 0);
  CHECK(bytes(parameters.memory, kTag) == 0);
}

namespace {

// Records the calls that announce a shard's complete gradients, in a step of `micro_batches`
// backward passes.
struct Told {
  std::vector<size_t> shards;  // numbers of shards, in the order of the calls
  bool right = true;           // true: at each call the shard had its final gradient
  int before_last = 0;         // number of calls before the root's last gradient
};

Told listen(comm::ProcessGroup& group, const comm::DataParallelOptions& options,
            int micro_batches) {
  Context context(small_context(1));
  const auto model = models::make_language_model(tiny_model());
  offload::HostTier tier(context, {});
  comm::DataParallelOptions parallel_options = options;
  parallel_options.offload = {.tier = &tier, .gradients = options.stage >= 2};
  comm::DataParallel parallel(*model, model->blocks(), context, group, parallel_options);
  Told told;
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < parallel.shards().size(); ++i) {
    const OptimShard& shard = parallel.shards()[i];
    shard.fence->set({.wait = {}, .gradient_complete = [&, i](const Event& arrived) {
                        arrived.synchronize();
                        told.shards.push_back(i);
                        values.push_back(to_host<float>(parallel.shards()[i].grad));
                      }});
  }
  // Backward of the first block is second to last. This barrier in it makes sure that the
  // reductions of later blocks have finished.
  for (const Parameter* parameter : parallel.unit(*model->blocks().front()).parameters()) {
    leaf_state(parameter->value).ready_hooks.push_back([&] { group.barrier("test"); });
  }
  for (const Parameter* parameter : parallel.unit(*model).parameters()) {
    leaf_state(parameter->value).ready_hooks.push_back([&] {
      told.before_last = int(told.shards.size());
    });
  }
  for (int j = 0; j < micro_batches; ++j) {
    const auto ids = rand_int<int32_t>(kLength, uint64_t(7 + group.rank()), 0, 60);
    const Tensor batch = from_host<int32_t>(context, ids, {1, kLength});
    parallel.begin_backward(/*last=*/j + 1 == micro_batches);
    backward(model->loss(batch, batch));
    told.right = told.right && (j + 1 == micro_batches || told.shards.empty());
  }
  parallel.finish_gradients();
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor grad = parallel.shards()[told.shards[i]].grad;
    told.right = told.right && same_bits(values[i], to_host<float>(grad));
  }
  std::sort(told.shards.begin(), told.shards.end());
  return told;
}

}  // namespace

TEST_CASE("a gradient is called complete once a step, as soon as its unit is reduced") {
  const auto group = world().group();
  const std::vector<size_t> each = {0, 1, 2, 3};  // shard numbers of the root and of three blocks
  for (const int stage : {0, 1, 2, 3}) {
    for (const int micro_batches : {1, 2}) {
      for (const bool overlap : {true, false}) {
        CAPTURE(stage, micro_batches, overlap);
        const Told told = listen(*group, {.stage = stage, .overlap = overlap}, micro_batches);
        CHECK(told.shards == each);
        CHECK(told.right);
        // In stage 3, one reduction and the gradients of one unit are still in flight. If gradients
        // are added up in host memory (`added`), a sum is complete only after the CPU has added to
        // it.
        const bool added = stage >= 2 && micro_batches > 1;
        if (overlap && !added) CHECK(told.before_last >= (stage == 3 ? 1 : 2));
      }
    }
  }
}

TEST_CASE("offload that cannot be is refused") {
  const auto group = world().group();
  const auto refused = [&](int stage, const models::StepOffload& offload) {
    return message_of<ConfigError>([&] { run(*group, stage, offload); });
  };
  CHECK(contains(refused(2, {.optimizer = true, .parameters = true}), "found stage 2"));
  CHECK(contains(refused(1, {.optimizer = true, .gradients = true}), "found stage 1"));
  CHECK(contains(refused(0, {.optimizer = true, .share = 2}), "offload_share is 2"));
}

}  // namespace shale::test
