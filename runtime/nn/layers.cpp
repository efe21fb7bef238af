#include "shale/runtime/nn/layers.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/nn/lora.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/swiglu.h"

namespace shale::nn {
namespace {

bool has_adapter(std::initializer_list<const LinearWeights*> layers) {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LinearWeights* layer) { return layer->adapter() != nullptr; });
}

}  // namespace

LinearWeights::LinearWeights(Module* parent, std::string name, int64_t in, int64_t out,
                             Init weight_init, Bias with_bias)
    : Module(parent, std::move(name)),
      weight(declare("weight", {out, in}, weight_init)),
      bias(with_bias == Bias::kYes ? &declare("bias", {out}, Init::zeros(), /*decay=*/false)
                                   : nullptr) {}

LinearWeights::~LinearWeights() = default;

Tensor LinearWeights::product(const Tensor& x, const Tensor& residual) const {
  const Tensor y = linear(x, weight.value, bias != nullptr ? bias->value : Tensor(), residual);
  return adapter_ != nullptr ? adapter_->forward(x, y) : y;
}

void LinearWeights::adapt(const LoraOptions& options, uint32_t dropout_site) {
  if (!is_adaptable || adapter_ != nullptr) {
    throw InternalError(cat(full_name(), ": takes no adapter, or has one"));
  }
  adapter_ = std::make_unique<Lora>(*this, options, dropout_site);
}

Linear::Linear(Module* parent, std::string name, int64_t in, int64_t out, Init weight_init,
               Bias with_bias)
    : LinearWeights(parent, std::move(name), in, out, weight_init, with_bias) {
  is_adaptable = true;
}

Tensor Linear::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual,
             [this](const Tensor& in, const Tensor& stream) { return product(in, stream); });
}

FeedForward::FeedForward(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      up(this, config.up, config.width, config.hidden, config.init),
      down(this, config.down, config.hidden, config.width, config.down_init),
      gelu_(config.gelu) {
  up.is_adaptable = down.is_adaptable = true;
}

Tensor FeedForward::adapted(const Tensor& x, const Tensor& residual) const {
  return down.product(gelu(up.product(x), gelu_), residual);
}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    if (has_adapter({&up, &down})) return adapted(in, stream);
    return ffn(in, up.weight.value, up.bias->value, down.weight.value, down.bias->value, stream,
               gelu_);
  });
}

SwiGlu::SwiGlu(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      gate_proj(this, "gate_proj", config.width, config.hidden, config.init, Bias::kNo),
      up_proj(this, "up_proj", config.width, config.hidden, config.init, Bias::kNo),
      down_proj(this, "down_proj", config.hidden, config.width, config.down_init, Bias::kNo) {
  gate_proj.is_adaptable = up_proj.is_adaptable = down_proj.is_adaptable = true;
}

Tensor SwiGlu::adapted(const Tensor& x, const Tensor& residual) const {
  const std::vector<Tensor> halves = {gate_proj.product(x), up_proj.product(x)};
  const auto activation = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul(silu(in[0]), in[1])};
  };
  return down_proj.product(fused(activation, halves)[0], residual);
}

Tensor SwiGlu::forward(const Tensor& x, const Tensor& residual) {
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    if (has_adapter({&gate_proj, &up_proj, &down_proj})) return adapted(in, stream);
    return swiglu(in, gate_proj.weight.value, up_proj.weight.value, down_proj.weight.value, stream);
  });
}

SelfAttention::SelfAttention(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      qkv(this, config.qkv, config.width, 3 * config.width, config.init),
      out(this, config.out, config.width, config.width, config.out_init),
      heads_(config.heads),
      causal_(config.causal) {
  qkv.weight.matrices = 3;
}

Tensor SelfAttention::forward(const Tensor& x, const Tensor& residual,
                              const AttentionSight& sight) {
  return run(x, residual, [this, sight](const Tensor& in, const Tensor& stream) {
    return out.forward(attend(qkv.forward(in), sight), stream);
  });
}

Tensor SelfAttention::attend(const Tensor& packed, const AttentionSight& sight) const {
  const AttentionOptions options{.causal = causal_, .first_keys = sight.first_keys};
  if (sight.cached == nullptr) return packed_attention(packed, heads_, options);
  const int64_t B = packed.size(0), T = packed.size(1), C = packed.size(2) / 3;
  const Tensor parts = reshape(packed, {B, T, 3, heads_, C / heads_});
  const auto [k, v] = sight.cached->append(part_of(parts, 1), part_of(parts, 2));
  return reshape(attention(part_of(parts, 0), k, v, options), {B, T, C});
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
