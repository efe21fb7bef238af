// Tests parallel axes on an emulated GPU that delays and reorders its streams by a seed. Results
// change if code uses a tensor before it has arrived, or frees it before it was sent.
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/devices.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {
namespace {

using emulator::Order;
using enum comm::ScheduleKind;

models::LanguageModelConfig two_layers(int64_t experts = 0) {
  models::LanguageModelConfig model = six_layers(experts > 0 ? "mixtral" : "llama");
  model.layers = 2;
  if (experts > 0) model.experts = experts, model.active_experts = 2;
  return model;
}

Trained train_on(const emulator::Options& order, const PipelineRun& run,
                 const models::LanguageModelConfig& model = two_layers()) {
  Context context({.deterministic = true},
                  make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, order));
  const auto group =
      world().group({.timeout_s = 60, .staging_bytes = 1 << 10, .transport = comm::Transport::kMpi},
                    context.backend());
  TrainOptions options{.steps = 2};
  options.parallel = {.compute = DType::kBF16, .stage = 1};
  return train_pipeline(context, *group, model, run, options);
}

const emulator::Options kInOrder = {.order = Order::kFifo, .track = false};

// Each rank reorders its streams differently.
std::vector<emulator::Options> other_orders() {
  const auto rank = static_cast<uint64_t>(world().rank());
  return {{.order = Order::kLifo, .track = false},
          {.order = Order::kRandom, .seed = 100 + rank, .track = false}};
}

}  // namespace

TEST_CASE("pipelines have the same bits on a device whose streams run in any order", "[staged]") {
  if (world().size() != 2) return;
  const Trained want = train_on(kInOrder, {.ranks = 2});
  CHECK(std::isfinite(want.losses.back()));
  for (const emulator::Options& order : other_orders()) {
    CAPTURE(static_cast<int>(order.order));
    CHECK(same(train_on(order, {.ranks = 2}), want));
    CHECK(same(train_on(order, {.ranks = 2, .kind = kZbH1, .slots = 1}), want));
    CHECK(same(train_on(order, {.ranks = 2, .kind = kZbV, .chunks = 2}), want));
    CHECK(same(train_on(order, {.ranks = 2, .kind = kInterleaved, .chunks = 2}), want));
  }
}

TEST_CASE("sequences that ranks share, and experts, have the same bits on such a device",
          "[staged][context][expert]") {
  if (world().size() != 2) return;
  for (const auto& [run, model] :
       {std::pair(PipelineRun{.context = 2, .micro_batches = 2}, two_layers()),
        std::pair(PipelineRun{.expert = 2, .micro_batches = 2}, two_layers(/*experts=*/4))}) {
    const Trained want = train_on(kInOrder, run, model);
    CHECK(std::isfinite(want.losses.back()));
    for (const emulator::Options& order : other_orders()) {
      CAPTURE(run.context, run.expert, static_cast<int>(order.order));
      CHECK(same(train_on(order, run, model), want));
    }
  }
}

}  // namespace shale::test
