#include "runtime/nn/layers.h"

#include <utility>

#include "runtime/ops/linear.h"

namespace shale::nn {

Linear::Linear(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init)
    : Module(parent, std::move(name)),
      weight(declare("weight", {out, in}, weight_init)),
      bias(declare("bias", {out}, Init::zeros(), /*decay=*/false)) {}

Tensor Linear::forward(const Tensor& x, const Tensor& residual) {
  return linear(x, weight.value, bias.value, residual);
}

LayerNorm::LayerNorm(Module* parent, std::string name, int64_t width, float eps)
    : Module(parent, std::move(name)),
      weight(declare("weight", {width}, Init::ones(), /*decay=*/false)),
      bias(declare("bias", {width}, Init::zeros(), /*decay=*/false)),
      eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, weight.value, bias.value, eps_);
}

NormedStream LayerNorm::forward_stream(const Tensor& x, const Tensor& branch) {
  return stream_layer_norm(x, branch, weight.value, bias.value, eps_);
}

Embedding::Embedding(Module* parent, std::string name, int64_t rows, int64_t width, Init init)
    : Module(parent, std::move(name)), weight(declare("weight", {rows, width}, init)) {}

}  // namespace shale::nn
