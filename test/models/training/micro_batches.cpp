// Tests training steps that replay CUDA graphs of forward and backward, on the emulator.
#include "shale/models/training/micro_batches.h"

#include <memory>
#include <optional>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/training/step.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

constexpr int64_t kRows = 2, kTokens = 11;  // not multiples of any tile

struct Case {
  const char* name = "";
  int64_t micro_batches = 1;
  float dropout = 0;
  Recompute recompute = Recompute::kNone;
  DType dtype = DType::kF32;
  Device device = {.type = DeviceType::kEmu, .arch = 80};
  comm::DataParallelOptions parallel = {};
  bool dependent_launch = false;
};

models::LanguageModelConfig small() {
  return {.layers = 2, .width = 24, .heads = 3, .vocab = 50, .padded_vocab = 64, .context = 16};
}

Batch batch_at(int64_t index, int64_t length = kTokens) {
  Batch batch =
      token_batch(rand_int<int32_t>(kRows * (length + 1), uint64_t(index), 0, 49), kRows, length);
  batch.first_position = index * kRows;
  return batch;
}

// The emulator does not track races here, because the kernels' own tests do.
constexpr emulator::Options kUntracked = {.track = false};

// A run of which the tests make one step at a time.
class Training : models::StepObserver {
 public:
  Training(const Case& c, bool graphs, const emulator::Options& options = kUntracked)
      : case_(c),
        context_({.threads = 2,
                  .deterministic = true,
                  .dependent_launch = c.dependent_launch,
                  .seed = 1},
                 backend_of(c.device, options)),
        group_(world_.group({}, context_.backend())),
        model_(models::make_language_model(small(), {.dropout = c.dropout})) {
    for (Module* block : model_->blocks()) block->set_recompute(c.recompute);
    models::StepOptions step{
        .parallel = c.parallel, .micro_batches = c.micro_batches, .clip = 1, .graphs = graphs};
    step.parallel.compute = c.dtype;
    step.parallel.seed = 5;
    step_.emplace(context_, comm::ShardGroups{.shard = group_.get()}, step_model(*model_), step,
                  make_adamw(), static_cast<models::StepObserver*>(this));
  }

  // Makes a step and returns the losses of its micro-batches.
  std::vector<float> step(int64_t length = kTokens) {
    int64_t index = steps_ * case_.micro_batches;
    Batch batch;
    step_->run({.step = steps_,
                .lr = 3e-3f,
                .weight = double(kRows * kTokens * case_.micro_batches),
                .first_position = index * kRows,
                .next_batch = [&]() -> const Batch& { return batch = batch_at(index++, length); }});
    step_->finish();
    ++steps_;
    return {losses_.begin(), losses_.end()};
  }

  std::vector<float> steps(int count) {
    std::vector<float> losses;
    for (int i = 0; i < count; ++i) {
      for (const float loss : step()) losses.push_back(loss);
    }
    return losses;
  }

  std::vector<float> parameters() {
    std::vector<float> values;
    step_->parallel().full_state([&](const Parameter&, const View& value) {
      const auto* first = static_cast<const float*>(value.data);
      values.insert(values.end(), first, first + value.numel());
    });
    return values;
  }

  // Evaluates in the middle of a run, with the model and the memory of training.
  float evaluate() {
    const Inference inference(context_);
    const DeviceBatch batch(context_, batch_at(1000));
    return to_host<float>(step_model(*model_).loss(batch)).front();
  }

  int64_t collectives() const { return group_->traffic().totals().calls; }
  Context& context() { return context_; }
  comm::DataParallel& parallel() { return step_->parallel(); }

 private:
  static std::unique_ptr<DeviceBackend> backend_of(const Device& device,
                                                   const emulator::Options& options) {
    return device.type == DeviceType::kEmu ? make_emu_backend(device, options)
                                           : make_backend(device);
  }
  void done(const models::StepOutcome& outcome) override { losses_ = outcome.losses; }

  Case case_;
  comm::World world_{0, nullptr};
  Context context_;
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<models::LanguageModel> model_;
  std::optional<models::TrainStep> step_;
  std::vector<double> losses_;  // losses of the last step
  int64_t steps_ = 0;
};

void check_same_bits(const Case& c, const emulator::Options& options = kUntracked) {
  CAPTURE(c.name, describe(options));
  // The first step launches kernels one by one, the second captures a graph, the third replays it.
  constexpr int kSteps = 3;
  Training eager(c, false, options), graphs(c, true, options);
  const std::vector<float> want = eager.steps(kSteps);
  REQUIRE(want.front() != want.back());
  CHECK(same_bits(graphs.steps(kSteps), want));
  CHECK(graphs.collectives() == eager.collectives());
  CHECK(same_bits(graphs.parameters(), eager.parameters()));
}

}  // namespace

TEST_CASE("replayed steps give the losses and parameters of eager ones, to the bit") {
  const Case cases[] = {
      {.name = "accumulation", .micro_batches = 3, .dropout = 0.1f, .dtype = DType::kBF16},
      {.name = "recompute", .dropout = 0.1f, .recompute = Recompute::kFull},
      {.name = "selective recompute",
       .recompute = Recompute::kSelective,
       .parallel = {.reproducible = true}},
      {.name = "Hopper", .dtype = DType::kBF16, .device = {.type = DeviceType::kEmu, .arch = 90}},
  };
  for (const Case& c : cases) check_same_bits(c);
}

TEST_CASE("every stage of sharding replays to the bits of its eager steps") {
  const Case cases[] = {
      {.name = "stage 1", .micro_batches = 2, .parallel = {.stage = 1}},
      {.name = "without overlap", .parallel = {.stage = 1, .overlap = false}},
      {.name = "stage 2", .micro_batches = 2, .parallel = {.stage = 2}},
      {.name = "stage 3, a part of it kept whole",
       .micro_batches = 2,
       .dtype = DType::kBF16,
       .parallel = {.persist_below = 100, .stage = 3}},
  };
  for (const Case& c : cases) check_same_bits(c);
}

TEST_CASE("replayed steps do not depend on the order of what runs at once") {
  check_same_bits({.name = "stage 3", .micro_batches = 2, .parallel = {.stage = 3}},
                  {.order = emulator::Order::kRandom, .seed = 1, .track = false});
}

TEST_CASE("replayed steps on this machine's GPU give the bits of eager ones") {
  const Device gpu = {.type = DeviceType::kCuda};
  try {
    make_backend(gpu);
  } catch (const UnavailableError& error) {
    WARN("not run: " << error.what());
    return;
  }
  for (const int stage : {0, 3}) {
    check_same_bits({.name = "GPU",
                     .micro_batches = 3,
                     .dropout = 0.1f,
                     .dtype = DType::kBF16,
                     .device = gpu,
                     .parallel = {.stage = stage}});
  }
}

TEST_CASE("dependent launches give the bits of plain ones, replayed or not") {
  const Case plain{.name = "plain",
                   .micro_batches = 2,
                   .dropout = 0.1f,
                   .dtype = DType::kBF16,
                   .device = {.type = DeviceType::kEmu, .arch = 90}};
  Case dependent = plain;
  dependent.dependent_launch = true;
  constexpr int kSteps = 3;
  const emulator::Options tracked;
  Training want(plain, false), eager(dependent, false, tracked), graphs(dependent, true, tracked);
  const std::vector<float> losses = want.steps(kSteps);
  REQUIRE(losses.front() != losses.back());
  CHECK(same_bits(eager.steps(kSteps), losses));
  CHECK(same_bits(graphs.steps(kSteps), losses));
  CHECK(same_bits(eager.parameters(), want.parameters()));
  CHECK(same_bits(graphs.parameters(), want.parameters()));
}

TEST_CASE("dependent launches are refused where kernels do not wait") {
  const auto refused = [](const Device& device) {
    return message_of<UnavailableError>(
        [&] { Context({.device = device, .dependent_launch = true}); });
  };
  CHECK(contains(
      refused({.type = DeviceType::kEmu, .arch = 80}),
      "expected a GPU with kernels compiled for compute capability 9.0 or later, or emu:90; "
      "found emu:80, with kernels for 8.0"));
  CHECK(contains(refused({}), "found cpu"));
}

TEST_CASE("a model can be used otherwise between two replays") {
  for (const int stage : {1, 3}) {
    CAPTURE(stage);
    const Case c{.name = "evaluation", .dropout = 0.1f, .parallel = {.stage = stage}};
    Training eager(c, false), graphs(c, true);
    for (int step = 0; step < 3; ++step) {
      CHECK(same_bits(graphs.step(), eager.step()));
      CHECK(same_bits(std::vector{graphs.evaluate()}, std::vector{eager.evaluate()}));
      graphs.context().allocator().release_cached();
    }
  }
}

TEST_CASE("replays need no more memory than the step before the capture") {
  for (const int64_t micro_batches : {1, 3}) {
    CAPTURE(micro_batches);
    Training graphs({.micro_batches = micro_batches}, true);
    graphs.step();
    const MemoryStats eager = graphs.context().allocator().stats();
    graphs.steps(2);
    const MemoryStats after = graphs.context().allocator().stats();
    CHECK(after.peak_reserved == eager.peak_reserved);
    // Each graph keeps one loss, whose memory block has 512 bytes.
    CHECK(after.allocated <= eager.allocated + micro_batches * 512);
  }
}

TEST_CASE("a micro-batch of another shape is an error") {
  Training graphs({}, true);
  graphs.step();
  const std::string message = message_of<ShapeError>([&] { graphs.step(kTokens - 1); });
  CAPTURE(message);
  CHECK(contains(message, "inputs int32 [2,10], expected inputs int32 [2,11]"));
}

TEST_CASE("a replay whose gradients are not those of its capture is an error") {
  Training graphs({}, true);
  graphs.steps(2);
  std::vector<bool> flags = graphs.parallel().gradient_flags();
  flags.flip();
  graphs.parallel().set_gradient_flags(flags);
  CHECK(contains(message_of<InternalError>([&] { graphs.step(); }),
                 "the gradients that exist differ"));
}

}  // namespace shale::test
