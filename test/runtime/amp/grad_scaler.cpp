#include "shale/runtime/amp/grad_scaler.h"

#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

constexpr int64_t kRows = 8, kWidth = 16, kVocab = 12;

// A classifier in f16, with its training loop.
struct Classifier : Module {
  Classifier() : linear(this, "linear", kWidth, kVocab, Init::normal(0.5f)) {}
  Tensor loss(const Tensor& x, const Tensor& targets) {
    return linear_cross_entropy(x, linear.weight.value, targets, kVocab);
  }
  nn::Linear linear;
};

class Training {
 public:
  explicit Training(const amp::GradScalerOptions& options, DType dtype = DType::kF16)
      : dtype_(dtype), scaler_(context_, options) {
    model_.linear.bias->trainable = false;
    materialize(model_, context_, dtype, 5);
    optimizer_ =
        std::make_unique<optim::AdamW>(local_shards(model_, context_), optim::AdamWOptions{});
  }

  // Makes a training step and returns the step state after it.
  StepState step(float input_std = 1) {
    optimizer_->prepare(context_, number_, 0.01f);
    optimizer_->set_updates(number_ - int64_t(skipped()));
    context_.update_step([](StepState& state) { state.grad_scale = 1.0f / kRows; });
    const auto values = randn<float>(kRows * kWidth, uint64_t(100 + number_), 0, input_std);
    const Tensor x = cast(from_host<float>(context_, values, {kRows, kWidth}), dtype_);
    const auto ids = rand_int<int32_t>(kRows, uint64_t(number_), 0, kVocab - 1);
    backward(model_.loss(x, from_host<int32_t>(context_, ids, {kRows})));
    optim::clip_grad_norm(context_, optimizer_->shards(), 1);
    optimizer_->step();
    optimizer_->zero_grad();
    scaler_.update();
    ++number_;
    return context_.read_step();
  }

  uint32_t skipped() { return scaler_.state().skipped_steps; }
  std::vector<float> master() { return to_host<float>(optimizer_->shards().front().master); }
  std::vector<float> moments() {
    std::vector<float> all;
    for (const optim::OptimState& state : optimizer_->states()) {
      for (const float value : to_host<float>(state.value)) all.push_back(value);
    }
    return all;
  }
  amp::GradScaler& scaler() { return scaler_; }

 private:
  Context context_{small_context()};
  DType dtype_;
  Classifier model_;
  amp::GradScaler scaler_;
  std::unique_ptr<optim::AdamW> optimizer_;
  int64_t number_ = 0;
};

}  // namespace

TEST_CASE("an overflow skips the step, lowers the scale, and training recovers") {
  Training training({.initial_scale = 0x1p22f, .growth_interval = 1000});
  const std::vector<float> before = training.master();
  // Gradients of the logits are up to 2^22 / 8, far beyond f16's maximum of 65504.
  int64_t skipped = 0;
  float scale = 0x1p22f;
  while (training.step().non_finite != 0) {
    ++skipped;
    scale /= 2;
    CHECK(training.master() == before);
    CHECK(training.moments() == std::vector<float>(training.moments().size(), 0.0f));
    CHECK(training.scaler().state().value == scale);
    REQUIRE(skipped < 20);
  }
  // The gradient of a logit is at most scale / 8, so it fits in f16 at the latest with a scale of
  // 2^18.
  CHECK(skipped >= 3);
  CHECK(skipped <= 5);
  CHECK(training.skipped() == skipped);
  CHECK(training.master() != before);
}

TEST_CASE("a power of two as scale changes no bit where nothing underflows or overflows") {
  const auto run = [](float scale) {
    Training training({.initial_scale = scale}, DType::kF32);
    std::vector<float> norms;
    for (int i = 0; i < 3; ++i) norms.push_back(training.step().grad_norm);
    return std::pair(norms, training.master());
  };
  CHECK(run(1) == run(1024));
}

TEST_CASE("bias corrections count the steps that were done") {
  // A run that skips its first batches by overflow must have the moments of a run without these
  // batches. Its update must have full size, lr, which requires the bias correction of a first
  // step.
  Training skipping({.initial_scale = 0x1p24f, .growth_interval = 1000});
  int64_t skipped = 0;
  while (skipping.step().non_finite != 0) ++skipped;
  REQUIRE(skipped > 0);
  Training fresh({.initial_scale = 65536, .growth_interval = 1000});
  const std::vector<float> before = fresh.master();
  fresh.step();
  const auto largest_change = [&](const std::vector<float>& after) {
    double largest = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      largest = std::max(largest, std::abs(double(after[i]) - before[i]));
    }
    return largest;
  };
  // Weight decay changes a weight w by at most 0.1 * |w| * lr, and |w| is below 2.
  CHECK(largest_change(fresh.master()) == Approx(0.01).epsilon(0.2));
  CHECK(largest_change(skipping.master()) == Approx(0.01).epsilon(0.2));
}

TEST_CASE("the scaler's state goes on in another run") {
  Training first({.initial_scale = 0x1p20f, .growth_interval = 3, .hysteresis = 2});
  for (int i = 0; i < 5; ++i) first.step();
  const LossScale state = first.scaler().state();
  CHECK(state.skipped_steps > 0);
  Training second({.initial_scale = 8, .growth_interval = 3, .hysteresis = 2});
  second.scaler().load(state);
  CHECK(second.scaler().state().value == state.value);
  CHECK(second.scaler().state().good_steps == state.good_steps);
  CHECK(second.scaler().state().tolerance == state.tolerance);
  CHECK(second.skipped() == state.skipped_steps);
}

TEST_CASE("options of the scaler that make no sense are errors") {
  Context context(small_context());
  const auto message = [&](const amp::GradScalerOptions& options) {
    return message_of<ConfigError>([&] { amp::GradScaler(context, options); });
  };
  CHECK(contains(message({.initial_scale = 0.5f}), "initial_scale is 0.5, expected 1 to"));
  CHECK(contains(message({.backoff_factor = 1}), "backoff_factor"));
  CHECK(contains(message({.growth_interval = 0}), "growth_interval is 0, expected at least 1"));
  CHECK(contains(message({.hysteresis = 0}), "hysteresis"));
}

TEST_CASE("every term of a loss has the loss scale and 1 / N, whatever ops it is made of") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    amp::GradScaler scaler(context, {.initial_scale = 1024});
    context.update_step([](StepState& state) { state.grad_scale = 0.25f; });
    const Tensor w = leaf(context, {2}, {3, -4});
    const Tensor logits = leaf(context, {1, 2}, {0, 0});
    const Tensor targets = from_host<int32_t>(context, std::vector<int32_t>{1}, {1});
    const Tensor zero = zeros(context, {2}, DType::kF32);
    // Computes 1/2 |w|² by plain ops and as a library loss, and adds a scaled cross-entropy.
    const Tensor squares = sum(mul(mul(w, w), 0.5f));
    const Tensor squared_error = scale(mse_loss(w, zero, LossReduction::kSum), 0.5f);
    const Tensor of_classes = mul(cross_entropy(logits, targets, 2), 3.f);
    backward(add(add(squares, squared_error), of_classes));
    CHECK(to_host<float>(w.grad()) == std::vector<float>{6 * 256, -8 * 256});
    CHECK(to_host<float>(logits.grad()) == std::vector<float>{1.5f * 256, -1.5f * 256});

    // backward() does not scale a gradient that the caller passes to it.
    const Tensor v = leaf(context, {1, 2}, {0, 0});
    backward(cross_entropy(v, targets, 2), full(context, {}, DType::kF32, 2));
    CHECK(to_host<float>(v.grad()) == std::vector<float>{1, -1});
  }
}

}  // namespace shale::test
