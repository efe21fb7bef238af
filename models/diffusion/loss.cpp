#include "shale/models/diffusion/loss.h"

#include "shale/base/error.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"

namespace shale::models {
namespace {

using Tensors = std::vector<Tensor>;

// Returns one coefficient of each sample as [N, 1, 1, 1], which broadcasts over pictures.
Tensor coefficient(const Tensor& all, LossCoefficient which) {
  return all.alias({all.size(0), 1, 1, 1}, {all.size(1), 1, 1, 1}, which);
}

// Approximates P(y < x) for a standard normal y, with the formula of the paper's program: 1/2 (1 +
// tanh z), z = sqrt(2 / pi) (x + 0.044715 x^3). Computes it as sigmoid(2 z), which is accurate for
// small probabilities.
Tensor normal_below(const Tensor& x) {
  constexpr float kFactor = 2 * 0.7978845608f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
  return sigmoid(mul(add(x, mul(mul(mul(x, x), x), kCubic)), kFactor));
}

// x_0 is the first byte value if it is below -kEnd, and the last one if it is above kEnd.
constexpr float kEnd = 0.999f;

// Returns the distance of x_0 from the mean, with a sign for which probabilities are small, so that
// differences of probabilities are precise. in: x_0 - mean, x_0.
// - First byte value: x_0 - mean. The interval of this byte has no lower end.
// - Last byte value: mean - x_0. This mirrors the interval of the byte, so that it has no lower end
//   either.
// - Other byte values: -|x_0 - mean|.
Tensors distance_of_byte(const Tensors& in) {
  return {where(less(in[1], -kEnd), in[0], where(less(in[1], kEnd), neg(abs(in[0])), neg(in[0])))};
}

// Returns two probabilities: that a value is below the upper end, and that it is below the lower
// end, of the interval of x_0's byte. The interval has width 1 / 127.5, with x_0 in its middle. in:
// distance, log variance.
Tensors ends_of_byte(const Tensors& in) {
  constexpr float kHalf = 1 / 255.f;
  const Tensor inverse = exp(mul(in[1], -0.5f));
  return {normal_below(mul(inverse, add(in[0], kHalf))),
          normal_below(mul(inverse, add(in[0], -kHalf)))};
}

// Returns -log of a byte's probability. in: probability below the upper end of the byte's interval,
// probability below its lower end, x_0.
Tensors byte_loss(const Tensors& in) {
  constexpr float kLeast = 1e-12f;
  const Tensor within = where(less(in[2], kEnd), sub(in[0], in[1]), in[0]);
  return {neg(log(maximum(where(less(in[2], -kEnd), in[0], within), kLeast)))};
}

// Returns the KL divergence of two normal distributions. in: difference of their means, learned log
// variance, log variance of the posterior.
Tensors divergence(const Tensors& in) {
  const Tensor spread = exp(sub(in[2], in[1]));
  const Tensor error = mul(mul(in[0], in[0]), exp(neg(in[1])));
  return {mul(add(add(sub(in[1], in[2]), add(spread, error)), -1.f), 0.5f)};
}

// Returns each element's contribution to the variational bound. error: noise minus model output,
// detached; v: the model's additional outputs, which determine the variance.
Tensor bound(const Tensor& error, const Tensor& v, const Tensor& images, const Tensor& all) {
  const auto of = [&](LossCoefficient which) { return coefficient(all, which); };
  const Tensor off = neg(mul(error, of(kMeanFactor)));
  const Tensor log_variance = fused(
      [](const Tensors& in) {
        const Tensor share = mul(add(in[0], 1.f), 0.5f);
        return Tensors{add(mul(share, in[1]), mul(sub(1.f, share), in[2]))};
      },
      {cast(contiguous(v), DType::kF32), of(kLogBeta), of(kLogPosterior)})[0];
  const Tensor later = fused(divergence, {off, log_variance, of(kLogPosterior)})[0];
  const Tensor distance = fused(distance_of_byte, {off, images})[0];
  const Tensors ends = fused(ends_of_byte, {distance, log_variance});
  const Tensor first = fused(byte_loss, {ends[0], ends[1], images})[0];
  return mul(where(of(kIsFirst), first, later), of(kBoundWeight));
}

// Returns the sum of the losses of samples. in: model output, images, noise, coefficients.
Tensor loss_of_samples(const DitConfig& config, DiffusionKind kind, const Tensors& in) {
  const Tensor &said = in[0], &images = in[1], &noise = in[2], &all = in[3];
  const int64_t channels = config.channels;
  const Tensor mean = config.learned_variance ? slice(said, 3, 0, channels) : said;
  const Tensor wanted = kind == DiffusionKind::kDdpm ? noise : sub(noise, images);
  const Tensor error = sub(wanted, mean);  // f32, because `wanted` is f32
  Tensor losses = mul(mul(error, error), coefficient(all, kWeight));
  if (config.learned_variance) {
    const Tensor v = slice(said, 3, channels, 2 * channels);
    losses = add(losses, bound(error.detach(), v, images, all));
  }
  return sum(losses);
}

}  // namespace

Tensor noisy_images(const DeviceBatch& batch) {
  const Tensor all = batch["coefficients"];
  return fused(
      [](const Tensors& in) { return Tensors{add(mul(in[0], in[2]), mul(in[1], in[3]))}; },
      {batch["images"], batch["noise"], coefficient(all, kSignal), coefficient(all, kSpread)})[0];
}

Tensor loss_of_result(const Dit& model, DiffusionKind kind, const DeviceBatch& batch,
                      const Tensor& said) {
  const nn::Distribution& ranks = model.distribution();
  Tensors inputs = {said};
  for (const char* name : {"images", "noise", "coefficients"}) {
    inputs.push_back(ranks.own_samples(batch[name]));
  }
  return ranks.sum_over_samples(loss_of_samples(model.config(), kind, inputs));
}

Tensor diffusion_loss(Dit& model, DiffusionKind kind, const DeviceBatch& batch) {
  if (model.config().learned_variance && kind != DiffusionKind::kDdpm) {
    throw ConfigError("diffusion: learned_variance needs DDPM, found a flow");
  }
  const Tensor said = model.forward(noisy_images(batch), batch["times"], batch["labels"]);
  return loss_of_result(model, kind, batch, said);
}

}  // namespace shale::models
