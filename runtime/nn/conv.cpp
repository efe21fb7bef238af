#include "shale/runtime/nn/conv.h"

#include <utility>

namespace shale::nn {

Conv2d::Conv2d(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      weight(declare("weight", {config.out, config.in, config.kernel, config.kernel}, config.init)),
      bias(config.bias == Bias::kYes
               ? &declare("bias", {config.out}, Init::zeros(), /*decay=*/false)
               : nullptr),
      windows_(config.windows) {}

Tensor Conv2d::forward(const Tensor& x) {
  return run(x, [this](const Tensor& in) {
    return conv2d(in, weight.value, bias != nullptr ? bias->value : Tensor(), windows_);
  });
}

BatchNorm::BatchNorm(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      weight(declare("weight", {config.width}, config.gain, /*decay=*/false)),
      bias(declare("bias", {config.width}, Init::zeros(), /*decay=*/false)),
      running_mean(declare_buffer(
          {.name = "running_mean", .shape = {config.width}, .ranks = BufferRanks::kMean})),
      running_var(declare_buffer({.name = "running_var",
                                  .shape = {config.width},
                                  .initial = 1,
                                  .ranks = BufferRanks::kMean})),
      eps_(config.eps),
      momentum_(config.momentum) {}

Tensor BatchNorm::forward(const Tensor& x, Relu relu, const Tensor& residual) {
  return run(x, residual, [this, relu](const Tensor& in, const Tensor& stream) {
    return batch_norm(in, weight.value, bias.value,
                      {.running_mean = running_mean.value,
                       .running_variance = running_var.value,
                       .eps = eps_,
                       .momentum = momentum_,
                       .relu = relu == Relu::kYes,
                       .peers = peers_},
                      stream);
  });
}

}  // namespace shale::nn
