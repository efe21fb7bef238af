// What offload takes from the device. That it changes no bit is in bitwise_gate.cpp.
#include "runtime/offload/host_tier.h"

#include "runtime/base/error.h"
#include "test/mpi/harness.h"
#include "test/mpi/training.h"
#include "test/support/op_check.h"

namespace shale::test {
namespace {

int64_t bytes(const MemoryStats& stats, MemoryTag tag) {
  return stats.current[size_t(tag)];
}

Trained run(comm::ProcessGroup& group, int stage, const TrainOffload& offload) {
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
  // The bf16 shards are half the masters' size.
  CHECK(bytes(optimizer.memory, kTag) > 0);
  CHECK(bytes(parameters.memory, kTag) == 0);
}

TEST_CASE("offload that cannot be is refused") {
  const auto group = world().group();
  const auto refused = [&](int stage, const TrainOffload& offload) {
    return message_of<ConfigError>([&] { run(*group, stage, offload); });
  };
  CHECK(contains(refused(2, {.optimizer = true, .parameters = true}), "not in stage 2"));
  CHECK(contains(refused(1, {.optimizer = true, .gradients = true}), "not in stage 1"));
  CHECK(contains(refused(0, {.optimizer = true, .share = 2}), "share to offload is 2"));
}

}  // namespace shale::test
