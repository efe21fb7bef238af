#include "shale/runtime/nn/layers.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/nn/cut_attention.h"
#include "shale/runtime/nn/exchange.h"
#include "shale/runtime/nn/frozen.h"
#include "shale/runtime/nn/lora.h"
#include "shale/runtime/nn/vocabulary_loss.h"
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

// Whether a layer makes its products one by one, because of what it has besides plain weights.
bool wants_product(std::initializer_list<const LinearWeights*> layers) {
  return std::any_of(layers.begin(), layers.end(), [](const LinearWeights* layer) {
    return layer->adapter() != nullptr || layer->kept_as() != FrozenDType::kCompute ||
           layer->operands != Operands::kPlain;
  });
}

bool is_columns(const Partition& partition) {
  return partition.share == LeafShare::kCut && partition.dim == 0;
}

// Of a layer's last product: its inputs are cut, its bias is added once.
bool is_rows(const LinearWeights& layer, const Parameter& parameter, const Partition& partition) {
  if (&parameter == layer.bias) return partition.share == LeafShare::kFirst;
  return &parameter == &layer.weight && partition.share == LeafShare::kCut && partition.dim == 1;
}

bool is_inside(const Parameter& parameter, const Module& module) {
  return parameter.owner == &module;
}

}  // namespace

LinearWeights::LinearWeights(Module* parent, std::string name, int64_t in, int64_t out,
                             Init weight_init, Bias with_bias)
    : Module(parent, std::move(name)),
      weight(declare("weight", {out, in}, weight_init)),
      bias(with_bias == Bias::kYes ? &declare("bias", {out}, Init::zeros(), /*decay=*/false)
                                   : nullptr),
      in_(in),
      out_(out) {}

LinearWeights::~LinearWeights() = default;

Tensor LinearWeights::product(const Tensor& x, const Tensor& residual,
                              const OpPieces& pieces) const {
  Tensor values = weight.value;
  if (kept_as_ != FrozenDType::kCompute) {
    values = thawed(values, kept_as_, {values.size(0), x.size(-1)}, x.dtype());
  }
  if (adapter_ == nullptr) return linear(x, values, added_bias(), residual, operands, pieces);
  // In sequences that are cut, the gradients of both uses of x are added here, before those of
  // other layers.
  const Tensor in = sequence() != nullptr ? reshape(x, x.shape()) : x;
  return adapter_->forward(in,
                           linear(in, values, added_bias(), residual, operands, {.in = pieces.in}));
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

Tensor Linear::forward(const Tensor& x, const Tensor& residual, const OpPieces& pieces) {
  return run(x, residual, [this, &pieces](const Tensor& in, const Tensor& rest) {
    return product(in, rest, pieces);
  });
}

FeedForward::FeedForward(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      up(this, config.up, config.width, config.hidden, config.init),
      down(this, config.down, config.hidden, config.width, config.down_init),
      gelu_(config.gelu) {
  up.is_adaptable = down.is_adaptable = true;
}

bool FeedForward::accepts(const Parameter& parameter, const Partition& partition) const {
  return is_inside(parameter, up) ? is_columns(partition) : is_rows(down, parameter, partition);
}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual) {
  const auto body = [this](const Tensor& rows, const Tensor& rest, const OpPieces& pieces) {
    if (wants_product({&up, &down})) {
      const Tensor hidden = gelu(up.product(rows, {}, {.in = pieces.in}), gelu_);
      return down.product(hidden, rest, {.out = pieces.out});
    }
    return ffn(rows, up.weight.value, up.added_bias(), down.weight.value, down.added_bias(), rest,
               gelu_, pieces);
  };
  return run(x, residual, [this, body](const Tensor& in, const Tensor& rest) {
    return across_by_pieces(exchange(), in, rest, body);
  });
}

SwiGlu::SwiGlu(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      gate_proj(this, "gate_proj", config.width, config.hidden, config.init, Bias::kNo),
      up_proj(this, "up_proj", config.width, config.hidden, config.init, Bias::kNo),
      down_proj(this, "down_proj", config.hidden, config.width, config.down_init, Bias::kNo) {
  gate_proj.is_adaptable = up_proj.is_adaptable = down_proj.is_adaptable = true;
}

bool SwiGlu::accepts(const Parameter& parameter, const Partition& partition) const {
  return is_inside(parameter, down_proj) ? is_rows(down_proj, parameter, partition)
                                         : is_columns(partition);
}

Tensor SwiGlu::forward(const Tensor& x, const Tensor& residual) {
  const auto activation = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul(silu(in[0]), in[1])};
  };
  const auto body = [this, activation](const Tensor& rows, const Tensor& rest,
                                       const OpPieces& pieces) {
    if (!wants_product({&gate_proj, &up_proj, &down_proj})) {
      return swiglu(rows, gate_proj.weight.value, up_proj.weight.value, down_proj.weight.value,
                    rest, pieces);
    }
    std::vector<Tensor> halves;
    {
      const SharedInputs shared({rows});
      for (LinearWeights* const half : {&gate_proj, &up_proj}) {
        halves.push_back(half->product(rows, {}, {.in = pieces.in}));
      }
    }
    return down_proj.product(fused(activation, halves)[0], rest, {.out = pieces.out});
  };
  return run(x, residual, [this, body](const Tensor& in, const Tensor& rest) {
    return across_by_pieces(exchange(), in, rest, body);
  });
}

SelfAttention::SelfAttention(Module* parent, std::string name, const Config& config)
    : Module(parent, std::move(name)),
      qkv(this, config.qkv, config.width, 3 * config.width, config.init),
      out(this, config.out, config.width, config.width, config.out_init),
      heads_(config.heads),
      causal_(config.causal),
      blocks_(config.blocks) {
  qkv.weight.matrices = 3;
}

bool SelfAttention::accepts(const Parameter& parameter, const Partition& partition) const {
  if (is_inside(parameter, out)) return is_rows(out, parameter, partition);
  return is_columns(partition) && partition.groups == 3 && heads_ % partition.leaves == 0;
}

Tensor SelfAttention::forward(const Tensor& x, const Tensor& residual,
                              const AttentionSight& sight) {
  return run(x, residual, [this, sight](const Tensor& in, const Tensor& rest) {
    Exchange* const ranks = exchange();
    const int64_t heads = ranks != nullptr ? heads_ / ranks->ranks() : heads_;
    const int64_t first_head = ranks != nullptr ? ranks->rank() * heads : 0;
    return across_by_pieces(
        ranks, in, rest, [&](const Tensor& rows, const Tensor& add, const OpPieces& pieces) {
          const Tensor packed = qkv.forward(rows, {}, {.in = pieces.in});
          return out.forward(attend(packed, first_head, heads, sight), add, {.out = pieces.out});
        });
  });
}

Tensor SelfAttention::attend(const Tensor& packed, int64_t first_head, int64_t heads,
                             const AttentionSight& sight) const {
  const AttentionOptions options{.causal = causal_,
                                 .first_keys = sight.first_keys,
                                 .blocks = blocks_,
                                 .first_head = first_head};
  if (sight.cached == nullptr) return nn::packed_attention(sequence(), packed, heads, options);
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

bool LayerNorm::accepts(const Parameter&, const Partition& partition) const {
  return partition.share == LeafShare::kRepeated;
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
      eps_(eps) {}

bool RmsNorm::accepts(const Parameter&, const Partition& partition) const {
  return partition.share == LeafShare::kRepeated;
}

Tensor RmsNorm::forward(const Tensor& x) {
  return run(x, [this](const Tensor& in) { return stream_rms_norm(in, {}, weight.value, eps_).y; });
}

// Squares are added in f32 over the channels of each rank, then over ranks.
Tensor RmsNorm::forward_channels(const Tensor& x) {
  return run(x, [this](const Tensor& in) {
    const float share = 1 / static_cast<float>(weight.whole[0]);
    const Tensor wide = cast(in, DType::kF32);
    const Tensor sums = sum_over_ranks(*exchange(), sum(mul(wide, wide), {-1}, /*keep=*/true));
    const Tensor scaled = mul(wide, rsqrt(add(mul(sums, share), eps_)));
    return cast(mul(scaled, weight.value), in.dtype());
  });
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

bool Embedding::accepts(const Parameter&, const Partition& partition) const {
  return is_columns(partition) || partition.share == LeafShare::kFirst;
}

Tensor Embedding::forward(const Tensor& ids, const Embedding* positions, const Tensor& at) {
  Exchange* const ranks = exchange();
  if (ranks == nullptr) return look_up(ids, positions, at, {});
  const int64_t rows = weight.whole[0], first = ranks->rank() * (rows / ranks->ranks());
  return nn::leave(*ranks, look_up(ids, positions, at, {.first = first, .whole = rows}));
}

Tensor Embedding::look_up(const Tensor& ids, const Embedding* positions, const Tensor& given,
                          const TableRows& rows) {
  // Of sequences that are cut, positions are looked up too.
  Tensor at = given;
  if (CutSequence* const cut = sequence();
      cut != nullptr && positions != nullptr && !at.defined()) {
    at = cut->positions(ids.context(), ids.size(0));
  }
  const Tensor more = positions != nullptr ? positions->weight.added_value() : Tensor();
  if (!at.defined()) return embedding(ids, weight.value, more, /*first_position=*/0, rows);
  const Tensor x = embedding(ids, weight.value, {}, /*first_position=*/0, rows);
  return more.defined() ? add(x, embedding(at, more)) : x;
}

Tensor Embedding::loss(const Tensor& x, const Tensor& targets, int64_t vocab,
                       const ClassifierLossOptions& options) {
  CutSequence* const cut = sequence();
  Exchange* const ranks = exchange();
  if (ranks != nullptr && options.softcap != 0) {
    throw ShapeError(cat("loss: logits are capped at ", options.softcap,
                         " over a table that is cut, want no softcap"));
  }
  // As rows before they are gathered: a view of what enter() gives would be kept for backward.
  const Tensor rows = reshape(x, {-1, x.size(-1)}), wanted = reshape(targets, {-1});
  const Tensor loss =
      ranks != nullptr
          ? vocabulary_cross_entropy(*ranks, nn::enter(*ranks, rows), weight.output_value(), wanted,
                                     vocab, options.chunk_rows)
          : linear_cross_entropy(rows, weight.output_value(), wanted, vocab, options);
  return cut != nullptr ? cut->sum(loss) : loss;
}

}  // namespace shale::nn
