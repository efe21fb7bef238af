#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Loss = Tensor (*)(const Tensor&, const Tensor&, LossReduction);

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

void expect_loss(const char* name, Loss loss, double (*fn)(double, double)) {
  for (const LossReduction reduction : {LossReduction::kMean, LossReduction::kSum}) {
    const double share = reduction == LossReduction::kMean ? 1.0 / 21 : 1;
    // A sum of 21 elements is about 10 and stays in f32 for every dtype. Gradients are rounded to
    // the dtype.
    expect_op({.name = name,
               .inputs = {{3, 7}, {3, 7}},
               .output = {},
               .op = [=](const auto& x) { return loss(x[0], x[1], reduction); },
               .reference =
                   [=](const std::vector<Vec>& x) {
                     double total = 0;
                     for (size_t i = 0; i < 21; ++i) total += share * fn(x[0][i], x[1][i]);
                     return Vec{total};
                   }},
              4e-6);
  }
}

}  // namespace

TEST_CASE("mean-squared and binary cross-entropy losses agree with f64") {
  expect_loss("mse_loss", mse_loss, [](double x, double t) { return (x - t) * (x - t); });
  expect_loss("bce_with_logits_loss", bce_with_logits_loss,
              [](double x, double t) { return std::log1p(std::exp(x)) - t * x; });
  expect_loss(
      "bce_loss",
      [](const Tensor& x, const Tensor& t, LossReduction reduction) {
        return bce_loss(sigmoid(cast(x, DType::kF32)), t, reduction);
      },
      [](double x, double t) {
        const double p = sigmoid_of(x);
        return -t * std::log(p) - (1 - t) * std::log1p(-p);
      });
}

TEST_CASE("the cross-entropy of soft targets agrees with f64") {
  constexpr int64_t kRows = 5, kClasses = 7;
  const std::vector<int32_t> labels = {3, 0, 6, 6, 1};
  expect_op({.name = "soft_cross_entropy",
             .inputs = {{kRows, kClasses}, {kRows, kClasses}},
             .output = {},
             .op =
                 [&](const auto& x) {
                   return soft_cross_entropy(
                       x[0], from_host<int32_t>(x[0].context(), labels, {kRows}), x[1]);
                 },
             .reference =
                 [&](const std::vector<Vec>& x) {
                   double total = 0;
                   for (size_t row = 0; row < kRows; ++row) {
                     double sum = 0;
                     for (size_t k = 0; k < kClasses; ++k) {
                       const double logit = x[0][row * kClasses + k];
                       const double target =
                           (k == size_t(labels[row]) ? 1 : 0) - x[1][row * kClasses + k];
                       sum += std::exp(logit);
                       total -= target * logit;
                     }
                     total += std::log(sum);
                   }
                   return Vec{total};
                 }},
            4e-6);
}

TEST_CASE("losses of certain predictions are finite, and so are their gradients") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    const Tensor p = leaf(context, {4}, {0, 1, 0, 1});
    const Tensor t = from_host<float>(context, std::vector<float>{0, 1, 1, 0}, {4});
    const Tensor loss = bce_loss(p, t, LossReduction::kSum);
    CHECK(to_host<float>(loss)[0] == Approx(2 * 69.3147));  // 2 * 100 ln 2
    backward(loss);
    for (const float value : to_host<float>(p.grad())) CHECK(std::isfinite(value));
    const Tensor x = leaf(context, {4}, {-1e4f, 1e4f, -1e4f, 1e4f});
    const Tensor with_logits = bce_with_logits_loss(x, t, LossReduction::kSum);
    CHECK(to_host<float>(with_logits)[0] == 2e4f);
    backward(with_logits);
    CHECK(to_host<float>(x.grad()) == std::vector<float>{0, 0, -1, 1});
  }
}

TEST_CASE("gradients of losses carry the step's scales") {
  for (const ContextOptions& options : small_contexts()) {
    Context context(options);
    StepState step;
    step.grad_scale = 0.25f;
    context.update_step([&](StepState& state) { state.grad_scale = step.grad_scale; });
    const Tensor x = leaf(context, {2}, {3, 1});
    const Tensor loss =
        mse_loss(x, from_host<float>(context, std::vector<float>{1, 1}, {2}), LossReduction::kSum);
    CHECK(to_host<float>(loss)[0] == 4);
    backward(loss);
    CHECK(to_host<float>(x.grad()) == std::vector<float>{1, 0});
  }
}

TEST_CASE("losses name a target of another shape") {
  Context context(small_context());
  CHECK(message_of<ShapeError>([&] {
          mse_loss(random_leaf(context, {3}, 1), random_leaf(context, {3, 1}, 1));
        }) == "mse_loss: target is [3,1], expected [3]");
}

}  // namespace shale::test
