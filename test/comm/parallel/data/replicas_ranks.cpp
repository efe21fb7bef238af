#include "shale/comm/parallel/data/replica_check.h"

#include "shale/comm/mesh.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

// Trains for two steps, flips a bit on rank `bad_rank` (-1: on no rank) and compares the replicas.
// Returns the error message.
std::string message_after_flip(const comm::ShardGroups& groups, comm::ProcessGroup& everyone,
                               int stage, int bad_rank) {
  Context context(small_context(1));
  const auto model = models::make_language_model(tiny_model());
  comm::DataParallel parallel(*model, model->blocks(), context, groups, {.stage = stage});
  optim::AdamW optimizer(parallel.shards(), {});
  const std::vector<int32_t> tokens(kLength, everyone.rank() + 1);
  for (int64_t step = 0; step < 2; ++step) {
    optimizer.prepare(context, step, 1e-2f);
    const Tensor batch = from_host<int32_t>(context, tokens, {1, kLength});
    backward(model->loss(batch, batch));
    parallel.finish_gradients();
    optimizer.step();
    optimizer.zero_grad();
  }
  comm::check_replicas(parallel, everyone);
  if (everyone.rank() == bad_rank) {
    const auto& buffer = *parallel.units().front()->buffers().front();
    if (stage < 3) parallel.unshard();
    Tensor values =
        stage < 3 ? parallel.units().front()->parameters().front()->value : buffer.master();
    static_cast<uint32_t*>(values.data())[3] ^= 1;  // flips the last bit of one element
  }
  try {
    comm::check_replicas(parallel, everyone);
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("one flipped bit of a parameter is found, and its rank and parameter named") {
  if (world().size() < 2) return;
  const int bad_rank = world().size() - 1;
  for (int stage = 0; stage <= 2; ++stage) {
    CAPTURE(stage);
    const auto fresh = world().group({.timeout_s = 60});
    const comm::ShardGroups groups{.shard = fresh.get()};
    CHECK(message_after_flip(groups, *fresh, stage, -1).empty());
    const std::string message = message_after_flip(groups, *fresh, stage, bad_rank);
    CAPTURE(message);
    CHECK(contains(message, "replicas differ: the copy of h.0."));
    CHECK(contains(message, cat("on rank ", bad_rank, " differs from that of the other")));
  }
}

TEST_CASE("in stage 3 copies are compared across replicas, and where there are none nothing is") {
  const auto group = world().group({.timeout_s = 60});
  const comm::ShardGroups groups{.shard = group.get()};
  CHECK(message_after_flip(groups, *group, 3, -1).empty());
  if (world().size() != 4) return;
  comm::Mesh mesh(*group, {{"replica", 2}, {"node", 2}});
  const comm::ShardGroups hybrid{.shard = &mesh.group("node"), .replicate = &mesh.group("replica")};
  CHECK(message_after_flip(hybrid, *group, 3, -1).empty());
}

TEST_CASE("a shard that differs from its replica's is found by the ranks that hold it") {
  if (world().size() != 4) return;
  const auto group = world().group({.timeout_s = 60});
  comm::Mesh mesh(*group, {{"replica", 2}, {"node", 2}});
  const comm::ShardGroups hybrid{.shard = &mesh.group("node"), .replicate = &mesh.group("replica")};
  // Ranks 1 and 3 hold the same shard, and see the difference; ranks 0 and 2 do not.
  const bool sees_it = world().rank() % 2 == 1;
  const std::string message = message_after_flip(hybrid, *group, 3, 3);
  CAPTURE(message);
  CHECK(contains(message, "on rank 3 differs from that of the other 1 rank") == sees_it);
}

}  // namespace shale::test
