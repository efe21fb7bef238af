#include "shale/runtime/nn/layers.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/nn/frozen.h"
#include "shale/runtime/nn/lora.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/swiglu.h"

namespace shale::nn {
namespace {

// True if one of the layers must compute its GEMM separately, because it has an adapter, frozen
// storage or fp8 operands.
bool wants_product(std::initializer_list<const LinearWeights*> layers) {
  return std::any_of(layers.begin(), layers.end(), [](const LinearWeights* layer) {
    return layer->adapter() != nullptr || layer->kept_as() != FrozenDType::kCompute ||
           layer->operands != Operands::kPlain;
  });
}

}  // namespace

void replicate(const std::vector<Module*>& modules) {
  for (const Module* module : modules) {
    for (Parameter* parameter : module->parameters()) parameter->split = {Share::kReplicate};
  }
}

LinearWeights::LinearWeights(Module* parent, std::string name, int64_t in, int64_t out,
                             Init weight_init, Bias with_bias)
    : Module(parent, std::move(name)),
      weight(declare("weight", {out, in}, weight_init)),
      bias(with_bias == Bias::kYes ? &declare("bias", {out}, Init::zeros(), /*decay=*/false)
                                   : nullptr),
      in_(in),
      out_(out) {}

LinearWeights::~LinearWeights() = default;

void LinearWeights::split_outputs(Outputs how) {
  weight.split = {.share = Share::kShard, .groups = how.groups, .unit = how.unit};
  if (bias != nullptr) bias->split = weight.split;
}

void LinearWeights::split_inputs() {
  weight.split = {.share = Share::kShard, .dim = 1};
  if (bias != nullptr) bias->split = {Share::kFirst};
}

Tensor LinearWeights::product(const Tensor& x, const Tensor& residual) const {
  Tensor values = weight.value;
  if (kept_as_ != FrozenDType::kCompute) {
    values = thawed(values, kept_as_, {values.size(0), x.size(-1)}, x.dtype());
  }
  if (adapter_ == nullptr) return linear(x, values, added_bias(), residual, operands);
  // x is used twice, by the layer and by its adapter. With context parallelism, reshape() makes the
  // gradients of the two uses add up first, before gradients from other layers are added.
  const Tensor in = distribution().shares_sequences() ? reshape(x, x.shape()) : x;
  // A residual made by no_residual() would make linear() send its rows (nn/distribution.h). But the
  // result is complete only after the adapter's op, so linear() gets an ordinary undefined tensor.
  const Tensor rest = residual.defined() ? residual : Tensor();
  return adapter_->forward(in, linear(in, values, added_bias(), rest, operands));
}

void LinearWeights::adapt(const LoraOptions& options, uint32_t dropout_site) {
  if (!is_adaptable || adapter_ != nullptr) {
    throw InternalError(
        cat(full_name(), ": cannot get an adapter: it does not support one, or already has one"));
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
             [this](const Tensor& in, const Tensor& rest) { return product(in, rest); });
}

FeedForward::FeedForward(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      up(this, config.up, config.width, config.hidden, config.init),
      down(this, config.down, config.hidden, config.width, config.down_init),
      gelu_(config.gelu) {
  up.is_adaptable = down.is_adaptable = true;
  up.split_outputs();
  down.split_inputs();
}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual) {
  const auto body = [this](const Tensor& rows, const Tensor& rest) {
    if (wants_product({&up, &down})) return down.product(gelu(up.product(rows), gelu_), rest);
    return ffn(rows, up.weight.value, up.added_bias(), down.weight.value, down.added_bias(), rest,
               gelu_);
  };
  return run(x, residual, [this, body](const Tensor& in, const Tensor& rest) {
    return distribution().across(in, rest, body);
  });
}

SwiGlu::SwiGlu(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      gate_proj(this, "gate_proj", config.width, config.hidden, config.init, Bias::kNo),
      up_proj(this, "up_proj", config.width, config.hidden, config.init, Bias::kNo),
      down_proj(this, "down_proj", config.hidden, config.width, config.down_init, Bias::kNo) {
  gate_proj.is_adaptable = up_proj.is_adaptable = down_proj.is_adaptable = true;
  gate_proj.split_outputs();
  up_proj.split_outputs();
  down_proj.split_inputs();
}

Tensor SwiGlu::forward(const Tensor& x, const Tensor& residual) {
  const auto activation = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul(silu(in[0]), in[1])};
  };
  const auto body = [this, activation](const Tensor& rows, const Tensor& rest) {
    if (!wants_product({&gate_proj, &up_proj, &down_proj})) {
      return swiglu(rows, gate_proj.weight.value, up_proj.weight.value, down_proj.weight.value,
                    rest);
    }
    std::vector<Tensor> halves;
    {
      const SharedInputs shared({rows});
      for (LinearWeights* const half : {&gate_proj, &up_proj}) {
        halves.push_back(half->product(rows));
      }
    }
    return down_proj.product(fused(activation, halves)[0], rest);
  };
  return run(x, residual, [this, body](const Tensor& in, const Tensor& rest) {
    return distribution().across(in, rest, body);
  });
}

SelfAttention::SelfAttention(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      qkv(this, config.qkv, config.width, 3 * config.width, config.init),
      out(this, config.out, config.width, config.width, config.out_init),
      head_size_(config.width / config.heads),
      causal_(config.causal),
      blocks_(config.blocks) {
  qkv.weight.matrices = 3;
  qkv.split_outputs({.groups = 3, .unit = head_size_});
  out.split_inputs();
}

Tensor SelfAttention::forward(const Tensor& x, const Tensor& residual,
                              const AttentionSight& sight) {
  return run(x, residual, [this, sight](const Tensor& in, const Tensor& rest) {
    return distribution().across(in, rest, [&](const Tensor& rows, const Tensor& add) {
      return out.forward(attend(qkv.forward(rows), sight), add);
    });
  });
}

Tensor SelfAttention::attend(const Tensor& packed, const AttentionSight& sight) const {
  const int64_t B = packed.size(0), T = packed.size(1), C = packed.size(2) / 3;
  const int64_t heads = C / head_size_;
  const AttentionOptions options{.causal = causal_,
                                 .first_keys = sight.first_keys,
                                 .blocks = blocks_,
                                 .first_head = distribution().first_of(heads)};
  if (sight.cached == nullptr) return distribution().packed_attention(packed, heads, options);
  const Tensor parts = reshape(packed, {B, T, 3, heads, head_size_});
  const auto [k, v] = sight.cached->append(part_of(parts, 1), part_of(parts, 2));
  return reshape(attention(part_of(parts, 0), k, v, options), {B, T, C});
}

LayerNorm::LayerNorm(Module* parent, std::string name, int64_t width, float eps)
    : Module(parent, std::move(name)),
      weight(declare("weight", {width}, Init::ones(), /*decay=*/false)),
      bias(declare("bias", {width}, Init::zeros(), /*decay=*/false)),
      eps_(eps) {
  replicate({this});
}

Tensor LayerNorm::forward(const Tensor& x) {
  return run(x, [this](const Tensor& in) {
    return stream_layer_norm(in, {}, weight.value, bias.value, eps_).y;
  });
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
      eps_(eps) {
  replicate({this});
}

Tensor RmsNorm::forward(const Tensor& x) {
  return run(x, [this](const Tensor& in) {
    const bool has_shares = weight.shape != weight.whole;
    return has_shares ? normed_shares(in) : stream_rms_norm(in, {}, weight.value, eps_).y;
  });
}

// Normalises rows whose channels are sharded: sums squares in f32 over this rank's channels, then
// over ranks.
Tensor RmsNorm::normed_shares(const Tensor& x) const {
  const float share = 1 / static_cast<float>(weight.whole[0]);
  const Tensor wide = cast(x, DType::kF32);
  const Tensor squares = sum(mul(wide, wide), {-1}, /*keep=*/true);
  const Tensor sums = distribution().sum_over_channels(squares);
  const Tensor scaled = mul(wide, rsqrt(add(mul(sums, share), eps_)));
  return cast(mul(scaled, weight.value), x.dtype());
}

NormedStream RmsNorm::forward_stream(const Tensor& x, const Tensor& branch) {
  const Tensors results = run({x, branch}, [this](const Tensors& in) {
    const auto [y, stream] = stream_rms_norm(in[0], in[1], weight.value, eps_);
    return Tensors{y, stream};
  });
  return {results[0], results[1]};
}

Embedding::Embedding(Module* parent, std::string name, int64_t rows, int64_t width, Init init)
    : Module(parent, std::move(name)), weight(declare("weight", {rows, width}, init)) {
  weight.split = {.share = Share::kShard};
}

Tensor Embedding::forward(const Tensor& ids, const Embedding* positions, const Tensor& given) {
  return distribution().embed(weight.whole[0], [&](const TableRows& rows) {
    Tensor at = given;
    if (positions != nullptr && !at.defined()) {
      at = distribution().positions(ids.context(), ids.size(0));
    }
    const Tensor more = positions != nullptr ? positions->weight.added_value() : Tensor();
    if (!at.defined()) return embedding(ids, weight.value, more, /*first_position=*/0, rows);
    const Tensor x = embedding(ids, weight.value, {}, /*first_position=*/0, rows);
    return more.defined() ? add(x, embedding(at, more)) : x;
  });
}

Tensor Embedding::loss(const Tensor& x, const Tensor& targets, int64_t vocab,
                       const ClassifierLossOptions& options) {
  return distribution().classifier_loss(reshape(x, {-1, x.size(-1)}), weight.output_value(),
                                        reshape(targets, {-1}), vocab, options);
}

}  // namespace shale::nn
