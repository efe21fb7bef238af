#include "shale/models/llama/llama.h"

#include <cmath>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/llama/variant.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/moe.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/rope.h"
#include "shale/runtime/ops/shape.h"

// In this file: B sequences, T tokens, C width, H heads of size D, G heads of keys and values.
namespace shale::models {
namespace {

constexpr float kInitStd = 0.02f;

// Returns smaller initial values for the weights whose output is added to the residual stream, as
// in GPT-2.
Init residual_init(const LanguageModelConfig& config) {
  return Init::normal(kInitStd / std::sqrt(2.0f * static_cast<float>(config.layers)));
}

nn::Bias output_bias(const LanguageModelConfig& config, const LlamaVariant& variant) {
  return nn::Bias{config.attention_bias && variant.attention_bias == AttentionBias::kAll};
}
nn::Bias qkv_bias(const LanguageModelConfig& config, const LlamaVariant& variant) {
  const bool always = variant.attention_bias == AttentionBias::kQkv;
  return always ? nn::Bias::kYes : output_bias(config, variant);
}

class SelfAttention : public Module {
 public:
  // Objects shared by the layers of a model.
  struct Shared {
    std::shared_ptr<const RopeTable> table;
    std::shared_ptr<const BlockMask> blocks;
  };
  SelfAttention(Module* parent, int64_t layer, const LanguageModelConfig& config,
                const LlamaVariant& variant, const Shared& shared);

  // Applies attention to x [B, T, C] and adds `residual`, [B, T, C], if it is defined. If `cached`
  // is given, the tokens of x follow the tokens in the cache.
  Tensor forward(const Tensor& x, const Tensor& residual, const Documents& documents,
                 const nn::CachedLayer* cached) {
    return run(x, residual, [this, documents, cached](const Tensor& in, const Tensor& stream) {
      const RopeOptions places = places_of(in, documents, cached);
      return distribution().across(in, stream, [&](const Tensor& rows, const Tensor& rest) {
        Tensor q, k, v;
        {
          const SharedInputs shared({rows});
          q = turned(q_proj_, q_norm_.get(), rows, places);
          k = turned(k_proj_, k_norm_.get(), rows, places);
          v = heads_of(v_proj_.forward(rows));
        }
        if (cached != nullptr) std::tie(k, v) = cached->append(k, v);
        const Tensor y =
            distribution().attention(q, k, v,
                                     {.window = window_,
                                      .first_keys = documents.first_keys,
                                      .softcap = softcap_,
                                      .blocks = blocks_,
                                      .first_head = distribution().first_of(q.size(2))});
        const Tensor joined = reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)});
        return o_proj_.forward(joined, rest);
      });
    });
  }

 private:
  RopeOptions places_of(const Tensor& x, const Documents& documents,
                        const nn::CachedLayer* cached) const {
    if (documents.positions.defined() || cached != nullptr) {
      return {.first_position = cached != nullptr ? cached->length : 0,
              .positions = documents.positions};
    }
    return {.positions = distribution().positions(x.context(), x.size(0))};
  }
  // Reshapes [B, T, n D] to [B, T, n, D].
  Tensor heads_of(const Tensor& x) const {
    return reshape(x, {x.size(0), x.size(1), x.size(2) / head_size_, head_size_});
  }
  // Projects, normalises and rotates queries or keys.
  Tensor turned(nn::Linear& projection, nn::RmsNorm* norm, const Tensor& x,
                const RopeOptions& places) const {
    Tensor row = projection.forward(x);
    if (head_norm_ == HeadNorm::kWholeRow) row = norm->forward(row);
    const Tensor heads = heads_of(row);
    return rope(head_norm_ == HeadNorm::kPerHead ? norm->forward(heads) : heads, table_, places);
  }

  int64_t head_size_, window_;
  float softcap_;
  HeadNorm head_norm_;
  std::shared_ptr<const RopeTable> table_;
  std::shared_ptr<const BlockMask> blocks_;
  nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::unique_ptr<nn::RmsNorm> q_norm_, k_norm_;
};

SelfAttention::SelfAttention(Module* parent, int64_t layer, const LanguageModelConfig& config,
                             const LlamaVariant& variant, const Shared& shared)
    : Module(parent, "self_attn"),
      head_size_(head_size_of(config)),
      window_(window_of(config, layer)),
      softcap_(config.attention_softcap),
      head_norm_(variant.head_norm),
      table_(shared.table),
      blocks_(shared.blocks),
      q_proj_(this, "q_proj", config.width, config.heads * head_size_, Init::normal(kInitStd),
              qkv_bias(config, variant)),
      k_proj_(this, "k_proj", config.width, kv_heads_of(config) * head_size_,
              Init::normal(kInitStd), qkv_bias(config, variant)),
      v_proj_(this, "v_proj", config.width, kv_heads_of(config) * head_size_,
              Init::normal(kInitStd), qkv_bias(config, variant)),
      o_proj_(this, "o_proj", config.heads * head_size_, config.width, residual_init(config),
              output_bias(config, variant)) {
  // Query heads are sharded together with the key heads that they attend to.
  const nn::LinearWeights::Outputs of_heads{.unit = head_size_};
  for (nn::Linear* const projection : {&q_proj_, &k_proj_, &v_proj_}) {
    projection->split_outputs(of_heads);
  }
  o_proj_.split_inputs();
  if (head_norm_ == HeadNorm::kNone) return;
  const auto norm = [&](const char* name, int64_t heads) {
    const int64_t width = (head_norm_ == HeadNorm::kWholeRow ? heads : 1) * head_size_;
    auto one = std::make_unique<nn::RmsNorm>(this, name, width, config.norm_eps);
    if (head_norm_ == HeadNorm::kWholeRow) one->weight.split = q_proj_.weight.split;
    return one;
  };
  q_norm_ = norm("q_norm", config.heads);
  k_norm_ = norm("k_norm", kv_heads_of(config));
}

nn::MoE::Config experts_of(const LanguageModelConfig& config, const LanguageModelPolicy& policy) {
  return {.width = config.width,
          .hidden = config.hidden,
          .experts = config.experts,
          .router = {.active = config.active_experts,
                     .rule = {.renormalise = config.renormalise},
                     .balance_loss = policy.balance_loss,
                     .z_loss = policy.router_z_loss,
                     .capacity_factor = policy.capacity_factor},
          .init = Init::normal(kInitStd),
          .down_init = residual_init(config)};
}

}  // namespace

class Llama::Block : public Module {
 public:
  Block(Module* parent, int64_t layer, const LanguageModelConfig& config,
        const LanguageModelPolicy& policy, const LlamaVariant& variant,
        const SelfAttention::Shared& shared)
      : Module(parent, cat("layers.", layer)) {
    const auto norm = [&](const char* name) {
      return std::make_unique<nn::RmsNorm>(this, name, config.width, config.norm_eps);
    };
    if (!variant.norms_after) input_layernorm_ = norm("input_layernorm");
    self_attn_ = std::make_unique<SelfAttention>(this, layer, config, variant, shared);
    post_attention_layernorm_ = norm("post_attention_layernorm");
    if (config.experts > 0) {
      moe_ = std::make_unique<nn::MoE>(this, "mlp", experts_of(config, policy));
    } else {
      mlp_ = std::make_unique<nn::SwiGlu>(this, "mlp",
                                          nn::SwiGlu::Config{.width = config.width,
                                                             .hidden = config.hidden,
                                                             .init = Init::normal(kInitStd),
                                                             .down_init = residual_init(config)});
    }
    if (variant.norms_after) post_feedforward_layernorm_ = norm("post_feedforward_layernorm");
  }

  Tensor forward(const Tensor& input, const Documents& documents,
                 const nn::CachedLayer* cached = nullptr) {
    return run(input, [this, documents, cached](const Tensor& x) {
      return input_layernorm_ != nullptr ? norms_before(x, documents, cached)
                                         : norms_after(x, documents, cached);
    });
  }

 private:
  // Applies a block that normalises the input of each branch. Both residual additions are fused
  // into GEMMs.
  Tensor norms_before(const Tensor& input, const Documents& documents,
                      const nn::CachedLayer* cached) {
    const auto [normed, x] = input_layernorm_->forward_stream(input);
    const Tensor sum = self_attn_->forward(normed, x, documents, cached);
    const auto [again, y] = post_attention_layernorm_->forward_stream(sum);
    return feed_forward(again, y);
  }
  Tensor norms_after(const Tensor& x, const Documents& documents, const nn::CachedLayer* cached) {
    const Tensor attended = self_attn_->forward(x, {}, documents, cached);
    const Tensor y = add(x, post_attention_layernorm_->forward(attended));
    return add(y, post_feedforward_layernorm_->forward(feed_forward(y)));
  }
  Tensor feed_forward(const Tensor& x, const Tensor& residual = {}) {
    return moe_ != nullptr ? moe_->forward(x, residual) : mlp_->forward(x, residual);
  }

  // Null if the block normalises the output of branches.
  std::unique_ptr<nn::RmsNorm> input_layernorm_;
  std::unique_ptr<SelfAttention> self_attn_;
  std::unique_ptr<nn::RmsNorm> post_attention_layernorm_;
  std::unique_ptr<nn::SwiGlu> mlp_;  // null: the block has an MoE layer
  std::unique_ptr<nn::MoE> moe_;     // null: the block has no MoE layer
  // Null if the block normalises the input of branches.
  std::unique_ptr<nn::RmsNorm> post_feedforward_layernorm_;
};

Llama::Llama(const LanguageModelConfig& config, const LanguageModelPolicy& policy)
    : LanguageModel(config, policy),
      embed_tokens_(this, "embed_tokens", config.padded_vocab, config.width,
                    Init::normal(kInitStd)),
      layers_(),
      norm_(this, "norm", config.width, config.norm_eps) {
  const SelfAttention::Shared shared{
      .table = std::make_shared<const RopeTable>(config.rope, head_size_of(config)),
      .blocks = block_mask(config.pattern)};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    layers_.push_back(
        std::make_unique<Block>(this, layer, config, policy, llama_variant(config.family), shared));
  }
  const int64_t padding_rows = config.padded_vocab - config.vocab;
  embed_tokens_.weight.tied = config.tied;
  embed_tokens_.weight.padding_rows = padding_rows;
  if (!config.tied) {
    lm_head_ = std::make_unique<nn::Embedding>(this, "lm_head", config.padded_vocab, config.width,
                                               Init::normal(kInitStd));
    lm_head_->weight.padding_rows = padding_rows;
  }
}

Llama::~Llama() = default;

std::vector<Module*> Llama::blocks() {
  std::vector<Module*> blocks;
  for (const auto& layer : layers_) blocks.push_back(layer.get());
  return blocks;
}

nn::Embedding& Llama::head() {
  return lm_head_ != nullptr ? *lm_head_ : embed_tokens_;
}

std::vector<nn::Piece> Llama::pieces() {
  std::vector<nn::Piece> pieces = {
      {.name = "embedding",
       .parameters = nn::parameters_of({&embed_tokens_}),
       .cost = double(config().width),
       .feed = "inputs",
       .run = [this](const Tensor&, const Tensor& ids) { return embed_tokens_.forward(ids); }}};
  for (const auto& layer : layers_) {
    pieces.push_back({.name = layer->full_name(),
                      .unit = layer.get(),
                      .parameters = layer->parameters(),
                      .cost = double(whole_numel(*layer)),
                      .run = [this, &part = *layer](const Tensor& x, const Tensor&) {
                        return part.forward(x, documents());
                      }});
  }
  pieces.push_back({.name = "head",
                    .parameters = nn::parameters_of({&norm_, &head()}),
                    .cost = double(head().weight.whole.numel()),
                    .feed = "targets",
                    .run = [this](const Tensor& x, const Tensor& targets) {
                      return output_loss(head(), norm_.forward(x), targets);
                    }});
  return pieces;
}

Tensor Llama::next_logits(const Tensor& input, KvCache& cache, const Documents& documents) {
  const Inference inference(input.context());
  const int64_t B = input.size(0), T = input.size(1);
  const int64_t room = cache_room(cache, T);
  return run(input, [&](const Tensor& ids) {
    Tensor x = embedding(ids, embed_tokens_.weight.value, {});
    while (cache.layers.size() < layers_.size()) {
      cache.layers.push_back(empty(
          ids.context(), {B, room, 2, kv_heads_of(config()), head_size_of(config())}, x.dtype()));
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      const nn::CachedLayer cached{cache.layers[i], cache.length};
      x = layers_[i]->forward(x, documents, &cached);
    }
    cache.length += T;
    const Tensor last = contiguous(slice(x, 1, T - 1, T));
    Tensor logits = linear(norm_.forward(last), head().weight.value);
    if (const float softcap = config().logit_softcap; softcap > 0) {
      logits = scale(tanh(scale(logits, 1 / softcap)), softcap);
    }
    return reshape(logits, {B, config().padded_vocab});
  });
}

// An embedding that is not tied to the output layer is a lookup, which has no FLOPs. For a sequence
// of T tokens, a token attends to T / 2 keys on average. With a window w < T, the first w tokens
// attend to w / 2 keys on average, and later tokens to w keys.
double Llama::flops_per_token(int64_t seq_len) const {
  auto count = static_cast<double>(whole_numel(*this));
  if (!config().tied) count -= static_cast<double>(embed_tokens_.weight.whole.numel());
  const int64_t idle = config().experts - config().active_experts;
  count -= static_cast<double>(config().layers * idle) *
           static_cast<double>(3 * config().width * config().hidden);
  double keys = 0;  // twice the keys that a token attends to on average, summed over layers
  for (int64_t layer = 0; layer < config().layers; ++layer) {
    const auto window = static_cast<double>(window_of(config(), layer)), T = double(seq_len);
    keys += window > 0 && window < T ? window * (2 - window / T) : T;
  }
  keys *= config().pattern.share(seq_len, config().heads);
  return 6 * count + 6 * keys * static_cast<double>(config().heads * head_size_of(config()));
}

std::vector<NamedProduct> Llama::products() const {
  const int64_t C = config().width, F = config().hidden, D = head_size_of(config());
  std::vector<NamedProduct> products = {{"Q", C, config().heads * D},
                                        {"K, V", C, kv_heads_of(config()) * D},
                                        {"attention output", config().heads * D, C}};
  if (config().experts > 0) {
    products.push_back({"router", C, config().experts});
  } else {
    products.push_back({"FFN gate, up", C, F});
    products.push_back({"FFN down", F, C});
  }
  products.push_back({"classifier", C, config().padded_vocab});
  return products;
}

}  // namespace shale::models
