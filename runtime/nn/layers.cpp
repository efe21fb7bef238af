#include "shale/runtime/nn/layers.h"

#include <utility>

#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/swiglu.h"

namespace shale::nn {

Linear::Linear(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
               Bias with_bias)
    : Module(parent, std::move(name)),
      weight(declare("weight", {out, in}, weight_init)),
      bias(with_bias == Bias::kYes ? &declare("bias", {out}, Init::zeros(), /*decay=*/false)
                                   : nullptr) {}

Tensor Linear::forward(const Tensor& x, const Tensor& residual) {
  return run(x, [this, residual](const Tensor& in) {
    return linear(in, weight.value, bias != nullptr ? bias->value : Tensor(), enter(residual));
  });
}

SwiGlu::SwiGlu(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      gate_proj(this, "gate_proj", config.width, config.hidden, config.init, Bias::kNo),
      up_proj(this, "up_proj", config.width, config.hidden, config.init, Bias::kNo),
      down_proj(this, "down_proj", config.hidden, config.width, config.down_init, Bias::kNo) {}

Tensor SwiGlu::forward(const Tensor& x, const Tensor& residual) {
  return run(x, [this, residual](const Tensor& in) {
    return swiglu(in, gate_proj.weight.value, up_proj.weight.value, down_proj.weight.value,
                  enter(residual));
  });
}

LayerNorm::LayerNorm(Module* parent, std::string name, int64_t width, float eps)
    : Module(parent, std::move(name)),
      weight(declare("weight", {width}, Init::ones(), /*decay=*/false)),
      bias(declare("bias", {width}, Init::zeros(), /*decay=*/false)),
      eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x) {
  return run(x,
             [this](const Tensor& in) { return layer_norm(in, weight.value, bias.value, eps_); });
}

NormedStream LayerNorm::forward_stream(const Tensor& x, const Tensor& branch) {
  const Tensors results = run({x, branch}, [this](const Tensors& in) {
    const auto [y, stream] = stream_layer_norm(in[0], in[1], weight.value, bias.value, eps_);
    return Tensors{y, stream};
  });
  return {results[0], results[1]};
}

RmsNorm::RmsNorm(Module* parent, std::string name, int64_t width, float eps)
    : Module(parent, std::move(name)),
      weight(declare("weight", {width}, Init::ones(), /*decay=*/false)),
      eps_(eps) {}

Tensor RmsNorm::forward(const Tensor& x) {
  return run(x, [this](const Tensor& in) { return rms_norm(in, weight.value, eps_); });
}

NormedStream RmsNorm::forward_stream(const Tensor& x, const Tensor& branch) {
  const Tensors results = run({x, branch}, [this](const Tensors& in) {
    const auto [y, stream] = stream_rms_norm(in[0], in[1], weight.value, eps_);
    return Tensors{y, stream};
  });
  return {results[0], results[1]};
}

Embedding::Embedding(Module* parent, std::string name, int64_t rows, int64_t width, Init init)
    : Module(parent, std::move(name)), weight(declare("weight", {rows, width}, init)) {}

}  // namespace shale::nn
