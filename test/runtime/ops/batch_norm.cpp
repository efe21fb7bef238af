#include "shale/runtime/ops/batch_norm.h"

#include <cmath>

#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/conv.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Vec = std::vector<double>;
using Values = std::vector<Vec>;

constexpr double kEps = double{1e-5f};

struct Statistics {
  Vec mean, variance;  // one value per channel; the variance is divided by the number of rows
};

Statistics statistics_of(const Vec& x, size_t cols) {
  const auto rows = double(x.size() / cols);
  Statistics s{Vec(cols), Vec(cols)};
  for (size_t i = 0; i < x.size(); ++i) s.mean[i % cols] += x[i] / rows;
  for (size_t i = 0; i < x.size(); ++i) {
    s.variance[i % cols] += (x[i] - s.mean[i % cols]) * (x[i] - s.mean[i % cols]) / rows;
  }
  return s;
}

// Reference with the inputs x, gain, bias and optionally residual.
Vec reference(const Values& in, bool relu) {
  const size_t cols = in[1].size();
  const Statistics s = statistics_of(in[0], cols);
  Vec y;
  for (size_t i = 0; i < in[0].size(); ++i) {
    const size_t c = i % cols;
    double value = (in[0][i] - s.mean[c]) / std::sqrt(s.variance[c] + kEps) * in[1][c] + in[2][c];
    if (in.size() > 3) value += in[3][i];
    y.push_back(relu ? std::max(value, 0.0) : value);
  }
  return y;
}

BatchNormOptions options_for(Context& context, int64_t channels, bool relu) {
  return {.running_mean = zeros(context, {channels}, DType::kF32),
          .running_variance = full(context, {channels}, DType::kF32, 1),
          .relu = relu};
}

Tensor normalised(const std::vector<Tensor>& x, bool relu) {
  return batch_norm(x[0], x[1], x[2], options_for(x[0].context(), x[1].numel(), relu),
                    x.size() > 3 ? x[3] : Tensor());
}

}  // namespace

TEST_CASE("batch_norm agrees with f64, its gradients with finite differences") {
  for (const bool with_residual : {false, true}) {
    for (const bool relu : {false, true}) {
      OpCase op_case{.name = cat("batch_norm residual ", with_residual, " relu ", relu),
                     .inputs = {{2, 3, 2, 5}, {5}, {5}},
                     .output = {2, 3, 2, 5},
                     .op = [relu](const std::vector<Tensor>& x) { return normalised(x, relu); },
                     .reference = [relu](const Values& in) { return reference(in, relu); }};
      if (with_residual) op_case.inputs.push_back({2, 3, 2, 5});
      expect_op(op_case, 2e-5, 4);
    }
  }
}

namespace {

struct Net : Module {
  Net() : norm(this, "norm", {.width = 3}) {}
  nn::BatchNorm norm;
};

}  // namespace

TEST_CASE("training moves the running statistics, and inference normalises with them") {
  Context context(small_context());
  Net net;
  materialize(net, context, DType::kF32, 1);
  const auto values = randn<float>(8 * 3, 1, 2, 3);
  const Tensor x = leaf(context, {8, 3}, values);
  net.norm.forward(x);
  const Statistics s = statistics_of(to_f64(values), 3);
  Vec mean, variance;
  for (size_t c = 0; c < 3; ++c) {
    mean.push_back(0.1 * s.mean[c]);
    variance.push_back(0.9 + 0.1 * s.variance[c] * 8 / 7);
  }
  const auto means = to_host<float>(net.norm.running_mean.value);
  const auto variances = to_host<float>(net.norm.running_var.value);
  // Allows two roundings of numbers below 4.
  CHECK(max_error(means, mean) <= 4 * 0x1p-24);
  CHECK(max_error(variances, variance) <= 8 * 0x1p-24);

  const Inference inference(context);
  const auto y = to_host<float>(net.norm.forward(x));
  Vec want;
  for (size_t i = 0; i < values.size(); ++i) {
    want.push_back((double{values[i]} - double{means[i % 3]}) /
                   std::sqrt(double{variances[i % 3]} + kEps));
  }
  CHECK(max_error(y, want) <= 16 * 0x1p-24 * max_abs(want));
  CHECK(same_bits(to_host<float>(net.norm.running_mean.value), means));
}

TEST_CASE("a segment that runs again leaves the running statistics alone") {
  const auto running_after = [](Recompute level) {
    Context context(small_context());
    Net net;
    materialize(net, context, DType::kF32, 1);
    net.norm.set_recompute(level);
    const Tensor x = random_leaf(context, {8, 3}, 1);
    backward(sum(mul(net.norm.forward(x), random_leaf(context, {8, 3}, 2))));
    std::vector<float> result = to_host<float>(net.norm.running_mean.value);
    for (const Tensor& more :
         {net.norm.running_var.value, x.grad(), net.norm.weight.value.grad()}) {
      for (const float value : to_host<float>(more)) result.push_back(value);
    }
    return result;
  };
  CHECK(same_bits(running_after(Recompute::kFull), running_after(Recompute::kNone)));
}

TEST_CASE("the gradient of an inference's batch norm takes its statistics as fixed") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {6, 2}, 1), gain = random_leaf(context, {2}, 2);
  const Tensor bias = random_leaf(context, {2}, 3), dy = random_leaf(context, {6, 2}, 4);
  BatchNormOptions options = options_for(context, 2, false);
  options.running_variance = full(context, {2}, DType::kF32, 4);
  context.autograd().training = false;  // evaluation mode, in which gradients are still computed
  backward(sum(mul(batch_norm(x, gain, bias, options), dy.detach())));
  Vec want;
  const auto gains = to_host<float>(gain), slopes = to_host<float>(dy);
  for (size_t i = 0; i < slopes.size(); ++i) {
    want.push_back(double{slopes[i]} * double{gains[i % 2]} / std::sqrt(4 + kEps));
  }
  CHECK(max_error(to_host<float>(x.grad()), want) <= 4 * 0x1p-24 * max_abs(want));
}

TEST_CASE("batch_norm needs statistics of each channel") {
  Context context(small_context());
  const Tensor x = random_leaf(context, {6, 2}, 1), gain = random_leaf(context, {2}, 2);
  CHECK(message_of<ShapeError>([&] {
          batch_norm(x, gain, gain, options_for(context, 3, false));
        }) == "batch_norm: running_mean is [3], expected [2]");
}

}  // namespace shale::test
