#include "shale/models/diffusion/sampler.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/models/diffusion/batches.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/shape.h"

namespace shale::models {
namespace {

using Tensors = std::vector<Tensor>;

// Computes the model's output for pictures of given classes, with classifier-free guidance.
class GuidedModel {
 public:
  GuidedModel(Dit& model, Context& context, const std::vector<int32_t>& labels, double guidance)
      : model_(model),
        context_(context),
        count_(std::ssize(labels)),
        guidance_(static_cast<float>(guidance)) {
    std::vector<int32_t> all = labels;
    if (is_guided()) all.resize(2 * labels.size(), model.config().no_class());
    labels_ = from_host<int32_t>(context, all, {std::ssize(all)});
  }

  // Model output in f32. `variance` determines the learned variances; undefined if the model learns
  // none.
  struct ModelOutput {
    Tensor mean, variance;
  };
  ModelOutput operator()(const Tensor& x, double time) const {
    const int64_t C = model_.config().channels, N = is_guided() ? 2 * count_ : count_;
    const std::vector<double> times(static_cast<size_t>(N), time);
    const Tensor features = from_host<float>(
        context_, time_features(times, model_.config().variant), {N, kTimeFeatures});
    const Tensor in = is_guided() ? concat({x, x}, 0) : x;
    const Tensor of_rank = model_.forward(in, features, labels_);
    const Tensor all = cast(model_.distribution().all_samples(of_rank), DType::kF32);
    // Output for `labels`. With guidance, `all` also has the output without a class.
    const Tensor said = slice(all, 0, 0, count_);
    ModelOutput result{.mean = contiguous(slice(said, 3, 0, C))};
    if (model_.config().learned_variance) result.variance = contiguous(slice(said, 3, C, 2 * C));
    if (is_guided()) {
      const Tensor rest = contiguous(slice(slice(all, 0, count_, N), 3, 0, C));
      result.mean = add(rest, mul(sub(result.mean, rest), guidance_));
    }
    return result;
  }

 private:
  bool is_guided() const { return guidance_ != 1; }

  Dit& model_;
  Context& context_;
  int64_t count_;
  float guidance_;
  Tensor labels_;
};

Tensor noise(Context& context, const Shape& shape, const SamplerOptions& options,
             const std::string& stream, int64_t first) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  write_noise(values, options.seed, stream, first * shape[1] * shape[2] * shape[3]);
  return from_host<float>(context, values, shape);
}

Tensor flow_back(const GuidedModel& model, Tensor x, const SamplerOptions& options) {
  const double stride = 1 / static_cast<double>(options.steps);
  for (int64_t i = options.steps; i > 0; --i) {
    const double now = shifted_time(static_cast<double>(i) * stride, options.shift);
    const double next = shifted_time(static_cast<double>(i - 1) * stride, options.shift);
    const Tensor velocity = model(x, model_time(options.kind, now)).mean;
    x = sub(x, mul(velocity, static_cast<float>(now - next)));
  }
  return x;
}

// Returns one step of DDPM without its noise, and the log variance of the noise.
std::pair<Tensor, Tensor> posterior(const GuidedModel::ModelOutput& said, const Tensor& x,
                                    const NoiseSchedule::Step& step, bool clips) {
  const auto of = [](double value) { return static_cast<float>(value); };
  const float spread = of(std::sqrt(1 - step.a)), rate = of(1 / std::sqrt(step.a));
  const float of_first = of(step.of_first), of_now = of(step.of_now);
  const Tensor mean = fused(
      [&](const Tensors& in) {
        Tensor first = mul(sub(in[0], mul(in[1], spread)), rate);
        if (clips) first = clamp(first, -1, 1);
        return Tensors{add(mul(first, of_first), mul(in[0], of_now))};
      },
      {x, said.mean})[0];
  const float least = of(step.log_posterior), most = of(std::log(step.beta));
  if (!said.variance.defined()) return {mean, full(x.context(), x.shape(), DType::kF32, most)};
  const Tensor share = mul(add(said.variance, 1.f), 0.5f);
  return {mean, add(mul(share, most - least), least)};
}

Tensor ddpm_back(const GuidedModel& model, Tensor x, int64_t first, const SamplerOptions& options) {
  const NoiseSchedule schedule(options.steps);
  for (int64_t i = schedule.size() - 1; i >= 0; --i) {
    const NoiseSchedule::Step& step = schedule.at(i);
    const double time = model_time(options.kind, static_cast<double>(step.time));
    auto [mean, log_variance] = posterior(model(x, time), x, step, options.clips);
    x = mean;
    if (i == 0) break;
    const Tensor more =
        noise(x.context(), x.shape(), options, cat("sampling noise of step ", i), first);
    x = add(x, mul(exp(mul(log_variance, 0.5f)), more));
  }
  return x;
}

}  // namespace

Tensor sample_images(Dit& model, Context& context, const std::vector<int32_t>& labels,
                     int64_t first, const SamplerOptions& options) {
  const DitConfig& config = model.config();
  if (options.steps < 1 || options.steps > NoiseSchedule::kSteps) {
    throw ConfigError(
        cat("sampler: found ", options.steps, " steps, expected 1 to ", NoiseSchedule::kSteps));
  }
  for (const int32_t label : labels) {
    if (label >= 0 && label <= config.no_class()) continue;
    throw ConfigError(cat("sampler: class is ", label, ", expected 0 to ", config.no_class()));
  }
  const Inference inference(context);
  const GuidedModel guided(model, context, labels, options.guidance);
  const Shape shape{std::ssize(labels), config.pixels, config.pixels, config.channels};
  const Tensor begin = noise(context, shape, options, "sampling noise", first);
  return options.kind == DiffusionKind::kFlow ? flow_back(guided, begin, options)
                                              : ddpm_back(guided, begin, first, options);
}

}  // namespace shale::models
