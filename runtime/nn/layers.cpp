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

Tensor LinearWeights::product(const Tensor& x, const Tensor& residual, size_t leaf, size_t part,
                              const OpPieces& pieces) const {
  Tensor values = weight.value_of(leaf, part);
  if (kept_as_ != FrozenDType::kCompute) {
    values = thawed(values, kept_as_, {values.size(0), x.size(-1)}, x.dtype());
  }
  if (adapter_ == nullptr) {
    return linear(x, values, bias_of(leaf, part), residual, operands, pieces);
  }
  // In sequences that are cut, the gradients of both uses of x are added here, before those of
  // other layers: a rank with several leaves splits x for each layer, and one with a single leaf
  // does not.
  const Tensor in = sequence() != nullptr ? reshape(x, x.shape()) : x;
  const Tensor y = linear(in, values, bias_of(leaf, part), residual, operands, {.in = pieces.in});
  return adapter_->forward(in, y, leaf, part);
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

Tensor Linear::forward(const Tensor& x, const Tensor& residual, size_t leaf,
                       const OpPieces& pieces) {
  return run(x, residual, [this, leaf, &pieces](const Tensor& in, const Tensor& stream) {
    return over_parts(sequence(), in, stream,
                      [this, leaf, &pieces](const Tensor& rows, const Tensor& rest, size_t part) {
                        return product(rows, rest, leaf, part, pieces);
                      });
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
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    return over_leaves_by_pieces(exchange(), in, stream,
                                 [this](const Tensor& rows, size_t leaf, const Tensor& rest,
                                        const OpPieces& pieces) {
                                   return part_of_leaf(rows, leaf, rest, pieces);
                                 });
  });
}

Tensor FeedForward::part_of_leaf(const Tensor& x, size_t leaf, const Tensor& residual,
                                 const OpPieces& pieces) {
  return over_parts(
      sequence(), x, residual, [&](const Tensor& rows, const Tensor& rest, size_t part) {
        if (wants_product({&up, &down})) {
          const Tensor hidden = gelu(up.product(rows, {}, leaf, part, {.in = pieces.in}), gelu_);
          return down.product(hidden, rest, leaf, part, {.out = pieces.out});
        }
        return ffn(rows, up.weight.value_of(leaf, part), up.bias_of(leaf, part),
                   down.weight.value_of(leaf, part), down.bias_of(leaf, part), rest, gelu_, pieces);
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
  return run(x, residual, [this](const Tensor& in, const Tensor& stream) {
    return over_leaves_by_pieces(exchange(), in, stream,
                                 [this](const Tensor& rows, size_t leaf, const Tensor& rest,
                                        const OpPieces& pieces) {
                                   return part_of_leaf(rows, leaf, rest, pieces);
                                 });
  });
}

Tensor SwiGlu::part_of_leaf(const Tensor& x, size_t leaf, const Tensor& residual,
                            const OpPieces& pieces) {
  const auto activation = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul(silu(in[0]), in[1])};
  };
  return over_parts(
      sequence(), x, residual, [&](const Tensor& rows, const Tensor& rest, size_t part) {
        if (wants_product({&gate_proj, &up_proj, &down_proj})) {
          std::vector<Tensor> halves;
          {
            const SharedInputs shared({rows});
            for (LinearWeights* const half : {&gate_proj, &up_proj}) {
              halves.push_back(half->product(rows, {}, leaf, part, {.in = pieces.in}));
            }
          }
          return down_proj.product(fused(activation, halves)[0], rest, leaf, part,
                                   {.out = pieces.out});
        }
        return swiglu(rows, gate_proj.weight.value_of(leaf, part),
                      up_proj.weight.value_of(leaf, part), down_proj.weight.value_of(leaf, part),
                      rest, pieces);
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
  return run(x, residual, [this, sight](const Tensor& in, const Tensor& stream) {
    Exchange* const leaves = exchange();
    const int64_t heads = leaves != nullptr ? heads_ / leaves->leaves() : heads_;
    const int64_t first = leaves == nullptr ? 0 : leaves->first_leaf();
    return over_leaves_by_pieces(
        leaves, in, stream,
        [&](const Tensor& rows, size_t leaf, const Tensor& rest, const OpPieces& pieces) {
          const Tensor packed = qkv.forward(rows, {}, leaf, {.in = pieces.in});
          const int64_t first_head = (first + static_cast<int64_t>(leaf)) * heads;
          return out.forward(attend(packed, first_head, heads, sight), rest, leaf,
                             {.out = pieces.out});
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
    return stream_layer_norm(in, {}, {weight.values(), bias.values()}, eps_).y;
  });
}

NormedStream LayerNorm::forward_stream(const Tensor& x, const Tensor& branch) {
  const Tensors results = run({x, branch}, [this](const Tensors& in) {
    const auto [y, stream] =
        stream_layer_norm(in[0], in[1], {weight.values(), bias.values()}, eps_);
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
  return run(
      x, [this](const Tensor& in) { return stream_rms_norm(in, {}, {weight.values()}, eps_).y; });
}

Tensor RmsNorm::forward_leaf(const Tensor& x, size_t leaf) {
  return run(x, [this, leaf](const Tensor& in) {
    NormWeights of_leaf;
    for (size_t part = 0; part < weight.row_parts(); ++part) {
      of_leaf.gains.push_back(weight.value_of(leaf, part));
    }
    return stream_rms_norm(in, {}, of_leaf, eps_).y;
  });
}

// Squares are added in f32 over the channels of each leaf, then over leaves.
std::vector<Tensor> RmsNorm::forward_channels(const std::vector<Tensor>& x) {
  return run(x, [this](const Tensors& in) {
    const float share = 1 / static_cast<float>(weight.whole[0]);
    Tensors wide, squares, normed;
    for (const Tensor& rows : in) {
      wide.push_back(cast(rows, DType::kF32));
      squares.push_back(sum(mul(wide.back(), wide.back()), {-1}, /*keep=*/true));
    }
    const Tensors sums = sum_over_leaves(*exchange(), squares);
    for (size_t leaf = 0; leaf < in.size(); ++leaf) {
      const Tensor scaled = mul(wide[leaf], rsqrt(add(mul(sums[leaf], share), eps_)));
      const Tensor y =
          over_parts(sequence(), scaled, {}, [&](const Tensor& rows, const Tensor&, size_t part) {
            return mul(rows, weight.value_of(leaf, part));
          });
      normed.push_back(cast(y, in[leaf].dtype()));
    }
    return normed;
  });
}

NormedStream RmsNorm::forward_stream(const Tensor& x, const Tensor& branch) {
  const Tensors results = run({x, branch}, [this](const Tensors& in) {
    const auto [y, stream] = stream_rms_norm(in[0], in[1], {weight.values()}, eps_);
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
  Exchange* const leaves = exchange();
  if (leaves == nullptr) return look_up(ids, positions, at, {});
  const int64_t rows = weight.whole[0], of_leaf = rows / leaves->leaves();
  std::vector<Tensor> parts;
  for (size_t i = 0; i < static_cast<size_t>(leaves->own_leaves()); ++i) {
    const int64_t leaf = leaves->first_leaf() + static_cast<int64_t>(i);
    parts.push_back(
        look_up(ids, positions, at, {.leaf = i, .rows = {.first = leaf * of_leaf, .whole = rows}}));
  }
  return nn::leave(*leaves, parts);
}

Tensor Embedding::look_up(const Tensor& ids, const Embedding* positions, const Tensor& given,
                          const Part& of) {
  CutSequence* const cut = sequence();
  // Of sequences that are cut, positions are looked up too.
  Tensor where = given;
  if (cut != nullptr && positions != nullptr && !given.defined()) {
    where = cut->positions(ids.context(), ids.size(0) / cut->parts().count);
  }
  return over_parts(cut, ids, where, [&](const Tensor& some, const Tensor& at, size_t part) {
    const Tensor table = weight.value_of(of.leaf, part);
    const Tensor more = positions != nullptr ? positions->weight.value_of(of.leaf, part) : Tensor();
    if (!at.defined()) return embedding(some, table, more, /*first_position=*/0, of.rows);
    const Tensor x = embedding(some, table, {}, /*first_position=*/0, of.rows);
    return more.defined() ? add(x, embedding(at, more)) : x;
  });
}

Tensor Embedding::loss(const Tensor& x, const Tensor& targets, int64_t vocab,
                       const ClassifierLossOptions& options) {
  const auto as_rows = [](const Tensor& in) { return reshape(in, {-1, in.size(-1)}); };
  CutSequence* const cut = sequence();
  Exchange* const leaves = exchange();
  if (leaves != nullptr && options.softcap != 0) {
    throw ShapeError(cat("loss: logits are capped at ", options.softcap,
                         " over a table that is cut, want no softcap"));
  }
  const Tensor all_targets = reshape(targets, {-1});
  const std::vector<Tensor> wanted = split_parts(cut, all_targets);
  // As rows before they are gathered: a view of what enter() gives would be kept for backward.
  const std::vector<Tensor> entered =
      leaves != nullptr ? nn::enter(*leaves, as_rows(x)) : std::vector<Tensor>{as_rows(x)};
  std::vector<std::vector<Tensor>> rows;  // by leaf of layers, by part of sequences
  for (const Tensor& leaf : entered) rows.push_back(split_parts(cut, leaf));
  std::vector<Tensor> losses;
  for (size_t part = 0; part < wanted.size(); ++part) {
    if (leaves == nullptr) {
      losses.push_back(linear_cross_entropy(rows[0][part], weight.output_value(part), wanted[part],
                                            vocab, options));
      continue;
    }
    std::vector<Tensor> of_part;
    for (const std::vector<Tensor>& leaf : rows) of_part.push_back(leaf[part]);
    losses.push_back(vocabulary_cross_entropy(*leaves, of_part, weight.output_values(part),
                                              wanted[part], vocab, options.chunk_rows));
  }
  return cut != nullptr ? cut->sum(losses) : losses.front();
}

}  // namespace shale::nn
