// Tests sharded training on an emulated GPU that delays and reorders its streams by a seed, so that
// a missing wait changes bits.
#include "shale/comm/mesh.h"
#include "shale/kernels/block_codes.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/muon.h"
#include "shale/runtime/optim/one_bit_adam.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/devices.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {
namespace {

using emulator::Order;

struct Row {
  std::string name;
  comm::DataParallelOptions parallel;
  models::StepOffload offload = {};
  Recompute recompute = Recompute::kNone;
};

TrainOptions train_options(const Row& row) {
  const int64_t ranks = world().size();
  TrainOptions options{.global_batch = ranks,
                       .micro_batch = 1,
                       .steps = 3,
                       .clip = 0,
                       .keep_gradients = false,
                       .recompute = row.recompute,
                       .parallel = row.parallel,
                       .offload = row.offload};
  options.parallel.compute = DType::kBF16;
  return options;
}

// `replicas` is the number of groups; the ranks of a group shard the state.
Trained train_on(std::unique_ptr<DeviceBackend> device, const TrainOptions& options,
                 int replicas = 1) {
  Context context({.deterministic = true}, std::move(device));
  // With one replica, small staging buffers split each transfer into several chunks. With several
  // replicas a transfer is one chunk. The next collective may then start before any result of the
  // previous one is copied back.
  const auto group = world().group({.timeout_s = 60,
                                    .staging_bytes = replicas == 1 ? 1 << 10 : 1 << 16,
                                    .transport = comm::Transport::kMpi},
                                   context.backend());
  if (replicas == 1) return train(context, {.shard = group.get()}, options);
  comm::Mesh mesh(*group, {{"replica", replicas}, {"node", 0}});
  return train(context, {.shard = &mesh.group("node"), .replicate = &mesh.group("replica")},
               options);
}

// Each rank reorders its streams differently. Race detection is off, because it doubles the time.
std::vector<emulator::Options> orders() {
  const auto rank = static_cast<uint64_t>(world().rank());
  return {{.order = Order::kLifo, .track = false},
          {.order = Order::kRandom, .seed = 100 + rank, .track = false}};
}

std::unique_ptr<DeviceBackend> gpu(const emulator::Options& order) {
  return make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, order);
}

// Returns the reference: a run whose work executes in the order of the calls.
Trained in_order(const Row& row, int replicas = 1) {
  return train_on(gpu({.order = Order::kFifo, .track = false}), train_options(row), replicas);
}

const models::StepOffload kAllOfIt = {.optimizer = true,
                                      .gradients = true,
                                      .parameters = true,
                                      .activations = true,
                                      .during_backward = false};

}  // namespace

TEST_CASE("every stage has the same bits on a device whose streams run in any order", "[staged]") {
  if (world().size() > 2) return;  // More ranks take longer and find no further errors.
  models::StepOffload early = kAllOfIt;
  early.during_backward = true;
  const std::vector<Row> rows = {
      {"stage 1", {.stage = 1}},
      {"stage 2", {.stage = 2}},
      {"stage 3", {.stage = 3}},
      {"stage 3, prefetch 3, recompute", {.stage = 3, .prefetch = 3}, {}, Recompute::kFull},
      {"stage 0, optimizer", {.stage = 0}, {.optimizer = true, .during_backward = false}},
      {"stage 1, optimizer, early", {.stage = 1}, {.optimizer = true}},
      {"stage 2, gradients",
       {.stage = 2},
       {.optimizer = true, .gradients = true, .during_backward = false}},
      {"stage 3, all of it", {.stage = 3}, kAllOfIt},
      {"stage 3, all of it, early", {.stage = 3}, early},
  };
  const Trained want = in_order({"stage 0", {}});
  CHECK(std::isfinite(want.losses.back()));
  for (const emulator::Options& order : orders()) {
    for (const Row& row : rows) {
      // A single rank uses several streams only for offload.
      if (world().size() == 1 && !row.offload.optimizer) continue;
      CAPTURE(row.name, static_cast<int>(order.order));
      CHECK(same(train_on(gpu(order), train_options(row)), want));
    }
  }
}

TEST_CASE("Muon's matrices have the same bits on a device whose streams run in any order",
          "[staged]") {
  if (world().size() > 2) return;
  const auto options_of = [](const Row& row) {
    TrainOptions options = train_options(row);
    options.steps = 2;
    options.optimizer = [](std::vector<OptimShard> shards) {
      return std::make_unique<optim::Muon>(std::move(shards), optim::MuonOptions{});
    };
    return options;
  };
  const Trained want = train_on(gpu({.order = Order::kFifo, .track = false}), options_of({}));
  CHECK_FALSE(same(want, in_order({"AdamW", {}})));
  for (const emulator::Options& order : orders()) {
    for (const Row& row :
         {Row{"stage 1", {.stage = 1}},
          Row{"stage 2, gradients", {.stage = 2}, {.optimizer = true, .gradients = true}},
          Row{"stage 3, all of it", {.stage = 3}, kAllOfIt}}) {
      CAPTURE(row.name, static_cast<int>(order.order));
      CHECK(same(train_on(gpu(order), options_of(row)), want));
    }
  }
}

TEST_CASE("replicas that send signs, or little, have the same bits whenever streams run",
          "[staged]") {
  if (world().size() != 2) return;
  TrainOptions one_bit = train_options({"1-bit Adam", {.stage = 1}});
  one_bit.optimizer = [](std::vector<OptimShard> shards) {
    return std::make_unique<optim::OneBitAdam>(std::move(shards),
                                               optim::OneBitAdamOptions{.freeze_step = 1});
  };
  TrainOptions local = train_options({"local steps", {.stage = 2}});
  local.local_steps = comm::LocalStepsOptions{.every = 2, .in_turn = true};
  for (const TrainOptions& options : {one_bit, local}) {
    const Trained want = train_on(gpu({.order = Order::kFifo, .track = false}), options, 2);
    CHECK(std::isfinite(want.losses.back()));
    for (const emulator::Options& order : orders()) {
      CAPTURE(options.local_steps.has_value(), static_cast<int>(order.order));
      CHECK(same(train_on(gpu(order), options, 2), want));
    }
  }
}

TEST_CASE("codes have the same bits on a device whose streams run in any order", "[staged]") {
  if (world().size() != 2) return;
  using kernels::BlockCode;
  const Row two = {"stage 2",
                   {.stage = 2, .gather_code = BlockCode::kInt8, .reduce_code = BlockCode::kNf4}};
  Row three = two;
  three.parallel.stage = 3;
  const Trained want = in_order(two);
  CHECK(std::isfinite(want.losses.back()));
  for (const emulator::Options& order : orders()) {
    for (const Row& row : {two, three}) {
      CAPTURE(row.parallel.stage, static_cast<int>(order.order));
      CHECK(same(train_on(gpu(order), train_options(row)), want));
    }
  }
}

TEST_CASE("weights gathered in fp8 have bf16's bits on a device whose streams run in any order",
          "[staged]") {
  if (world().size() != 2) return;
  const auto hopper = [](const emulator::Options& order) {
    return make_emu_backend({.type = DeviceType::kEmu, .arch = 90}, order);
  };
  TrainOptions options = train_options({"stage 3", {.stage = 3}});
  options.fp8 = Operands::kFp8;
  const Trained want = train_on(hopper({.order = Order::kFifo, .track = false}), options);
  CHECK(std::isfinite(want.losses.back()));
  options.parallel.gather_fp8 = true;
  for (const emulator::Options& order : orders()) {
    CAPTURE(static_cast<int>(order.order));
    CHECK(same(train_on(hopper(order), options), want));
  }
}

TEST_CASE("layers that ranks share have the same bits on a device whose streams run in any order",
          "[staged][tensor]") {
  if (world().size() != 2) return;
  TrainOptions options = train_options({"stage 1", {.stage = 1}});
  options.dropout = 0.1f;
  options.tensor_shards = 2;
  // One process hosts both tensor ranks, or each process hosts one.
  for (const int tensor : {2, 1}) {
    const auto run = [&](const emulator::Options& order) {
      Context context({.deterministic = true}, gpu(order));
      const auto group = world().group(
          {.timeout_s = 60, .staging_bytes = 1 << 10, .transport = comm::Transport::kMpi},
          context.backend());
      return train_pipeline(context, *group, tiny_model(),
                            {.tensor = tensor, .micro_batches = tensor}, options);
    };
    options.recompute = Recompute::kNone;
    const Trained want = run({.order = Order::kFifo, .track = false});
    CHECK(std::isfinite(want.losses.back()));
    for (const emulator::Options& order : orders()) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        CAPTURE(tensor, static_cast<int>(order.order), static_cast<int>(recompute));
        options.recompute = recompute;
        CHECK(same(run(order), want));
      }
    }
  }
}

TEST_CASE("training on a device that ignores waits between streams shows it", "[staged]") {
  if (world().size() > 2) return;
  const Row row = {"all of it", {.stage = 3}, kAllOfIt};
  const Trained want = in_order(row);
  int wrong = 0;
  for (const emulator::Options& order : orders()) {
    const Trained got = train_on(std::make_unique<ForgetfulDevice>(order), train_options(row));
    wrong += same(got, want) ? 0 : 1;
  }
  CHECK(wrong > 0);
}

TEST_CASE("sums over replicas follow those over shards on a device too", "[staged]") {
  if (world().size() != 4) return;
  const Trained want = in_order({"stage 1", {.stage = 1}}, /*replicas=*/2);
  for (const int stage : {1, 3}) {
    CAPTURE(stage);
    const Row row = {"hybrid", {.stage = stage}};
    CHECK(same(train_on(gpu(orders().back()), train_options(row), /*replicas=*/2), want));
  }
}

TEST_CASE("parameters that come ahead from the host do not hold up what the device computes",
          "[staged]") {
  if (world().size() > 1) return;
  auto device = std::make_unique<CountingDevice>(
      // The emulator executes work only when the host waits for it.
      emulator::Options{.order = Order::kLifo, .track = false});
  const CountingDevice& counting = *device;
  Context context({}, std::move(device));
  const auto group = world().group({}, context.backend());
  const auto model = models::make_language_model(tiny_model());
  offload::HostTier tier(context, {});
  comm::DataParallel parallel(*model, model->blocks(), context, *group,
                              {.compute = DType::kBF16,
                               .offload = {.tier = &tier, .gradients = true, .parameters = true},
                               .stage = 3});
  void* const stream = context.exec().stream;
  const CountingDevice::Copies before = counting.copies_beside(stream);
  std::vector<CountingDevice::Copies> seen;
  for (Module* block : model->blocks()) {
    block->add_hook(HookPoint::kBeforeForward, [&] {
      context.synchronize();
      seen.push_back(counting.copies_beside(stream));
    });
  }
  const auto ids = rand_int<int32_t>(kLength, 7, 0, 60);
  const Tensor batch = from_host<int32_t>(context, ids, {1, kLength});
  const Inference inference(context);
  model->loss(batch, batch);
  REQUIRE(seen.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    // When block i begins, these gathers are queued: the root's, those of blocks 0 to i, and the
    // next block's.
    CHECK(seen[size_t(i)].queued - before.queued == std::min(i + 3, 4));
    CHECK(seen[size_t(i)].done - before.done == i + 2);
  }
}

TEST_CASE("a group that cannot carry the model's memory is refused, in every stage") {
  const auto for_host = world().group();
  Context device({}, gpu(orders().front()));
  Context host(small_context(1));
  const auto for_device = world().group({.transport = comm::Transport::kMpi}, device.backend());
  for (const bool reproducible : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage, reproducible);
      const comm::DataParallelOptions options{.stage = stage, .reproducible = reproducible};
      const auto refused = [&](Context& context, comm::ProcessGroup& group) {
        return message_of<ConfigError>(
            [&] { comm::DataParallel parallel(context, {.shard = &group}, options); });
      };
      CHECK(contains(refused(device, *for_host), "is for host memory"));
      CHECK(contains(refused(device, *for_host), "World::group({}, context.backend())"));
      CHECK(contains(refused(host, *for_device), "is for device memory"));
    }
  }
}

}  // namespace shale::test
