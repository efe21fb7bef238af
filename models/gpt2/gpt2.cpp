#include "shale/models/gpt2/gpt2.h"

#include <cmath>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/shape.h"

// In this file: B sequences, T tokens, C width, H heads, D = C / H.
namespace shale::models {
namespace {

constexpr float kInitStd = 0.02f;

// Returns smaller initial values for the weights whose output is added to the residual stream, so
// that its variance does not grow with depth (section 2.3 of the paper).
Init residual_init(const LanguageModelConfig& config) {
  return Init::normal(kInitStd / std::sqrt(2.0f * static_cast<float>(config.layers)));
}

// Returns a number that identifies a dropout in the model. The dropout after the embedding has
// number 0.
uint32_t dropout_site(int64_t layer, uint32_t branch) {
  return 1 + 2 * static_cast<uint32_t>(layer) + branch;
}

nn::SelfAttention::Config attention_config(const LanguageModelConfig& config,
                                           std::shared_ptr<const BlockMask> blocks) {
  return {.width = config.width,
          .heads = config.heads,
          .init = Init::normal(kInitStd),
          .out_init = residual_init(config),
          .blocks = std::move(blocks)};
}

nn::FeedForward::Config mlp_config(const LanguageModelConfig& config) {
  return {.width = config.width,
          .hidden = 4 * config.width,
          .init = Init::normal(kInitStd),
          .down_init = residual_init(config),
          .gelu = config.gelu};
}

}  // namespace

class Gpt2::Block : public Module {
 public:
  Block(Module* parent, int64_t layer, const LanguageModelConfig& config, float dropout,
        const std::shared_ptr<const BlockMask>& blocks)
      : Module(parent, cat("h.", layer)),
        ln_1_(this, "ln_1", config.width, config.norm_eps),
        attn_(this, "attn", attention_config(config, blocks)),
        ln_2_(this, "ln_2", config.width, config.norm_eps),
        mlp_(this, "mlp", mlp_config(config)),
        layer_(layer),
        dropout_(dropout) {}

  // Applies the block to x. If `cached` is given, the tokens of x follow the tokens in the cache.
  Tensor forward(const Tensor& x, const Documents& documents,
                 const nn::CachedLayer* cached = nullptr) {
    return run(x, [this, first_keys = documents.first_keys, cached](const Tensor& input) {
      const bool drops = dropout_ > 0 && input.context().autograd().training;
      const auto [normed, stream] = ln_1_.forward_stream(input);
      if (!drops) {  // without dropout, both residual additions are fused into GEMMs
        const auto [again, y] =
            ln_2_.forward_stream(attn_.forward(normed, stream, {first_keys, cached}));
        return mlp_.forward(again, y);
      }
      const Tensor branch = attn_.forward(normed, {}, {first_keys, cached});
      const Tensor half = distribution().dropout(branch, dropout_, site(0), stream);
      const auto [again, y] = ln_2_.forward_stream(half);
      return distribution().dropout(mlp_.forward(again), dropout_, site(1), y);
    });
  }

 private:
  uint32_t site(uint32_t branch) const { return dropout_site(layer_, branch); }

  nn::LayerNorm ln_1_;
  nn::SelfAttention attn_;
  nn::LayerNorm ln_2_;
  nn::FeedForward mlp_;
  int64_t layer_;
  float dropout_;
};

Gpt2::Gpt2(const LanguageModelConfig& config, const LanguageModelPolicy& policy)
    : LanguageModel(config, policy),
      wte_(this, "wte", config.padded_vocab, config.width, Init::normal(kInitStd)),
      wpe_(this, "wpe", config.context, config.width, Init::normal(kInitStd)),
      h_(),
      ln_f_(this, "ln_f", config.width, config.norm_eps) {
  wte_.weight.tied = true;
  wte_.weight.padding_rows = config.padded_vocab - config.vocab;
  wpe_.weight.split = {Share::kFirst};
  const auto blocks = block_mask(config.pattern);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    h_.push_back(std::make_unique<Block>(this, layer, config, policy.dropout, blocks));
  }
}

Gpt2::~Gpt2() = default;

std::vector<Module*> Gpt2::blocks() {
  std::vector<Module*> blocks;
  for (const auto& block : h_) blocks.push_back(block.get());
  return blocks;
}

// Embeds tokens at `positions` or, if it is undefined, at consecutive positions from
// first_position.
Tensor Gpt2::embed(const Tensor& ids, const Tensor& positions, int64_t first_position) {
  const Tensor& tokens = wte_.weight.value;
  if (!positions.defined()) return embedding(ids, tokens, wpe_.weight.value, first_position);
  return add(embedding(ids, tokens), embedding(positions, wpe_.weight.value));
}

Tensor Gpt2::embed(const Tensor& ids) {
  const Tensor x = wte_.forward(ids, &wpe_, documents().positions);
  const bool drops = policy().dropout > 0 && x.context().autograd().training;
  return drops ? distribution().dropout(x, policy().dropout, /*site=*/0) : x;
}

Tensor Gpt2::loss_of(const Tensor& x, const Tensor& targets) {
  return output_loss(wte_, ln_f_.forward(x), targets);
}

std::vector<nn::Piece> Gpt2::pieces() {
  const auto C = static_cast<double>(config().width);
  std::vector<nn::Piece> pieces = {
      {.name = "embedding",
       .parameters = nn::parameters_of({&wte_, &wpe_}),
       .cost = C,
       .feed = "inputs",
       .run = [this](const Tensor&, const Tensor& ids) { return embed(ids); }}};
  for (const auto& block : h_) {
    pieces.push_back({.name = block->full_name(),
                      .unit = block.get(),
                      .parameters = block->parameters(),
                      .cost = 12 * C * C,
                      .run = [this, &part = *block](const Tensor& x, const Tensor&) {
                        return part.forward(x, documents());
                      }});
  }
  pieces.push_back(
      {.name = "head",
       .parameters = nn::parameters_of({&wte_, &ln_f_}),
       .cost = C * static_cast<double>(config().padded_vocab),
       .feed = "targets",
       .run = [this](const Tensor& x, const Tensor& targets) { return loss_of(x, targets); }});
  return pieces;
}

Tensor Gpt2::next_logits(const Tensor& input, KvCache& cache, const Documents& documents) {
  const Inference inference(input.context());
  const int64_t B = input.size(0), T = input.size(1), H = config().heads;
  const int64_t room = cache_room(cache, T);
  return run(input, [&](const Tensor& ids) {
    const Tensor& table = wte_.weight.value;
    while (cache.layers.size() < h_.size()) {
      cache.layers.push_back(
          empty(ids.context(), {B, room, 2, H, config().width / H}, table.dtype()));
    }
    Tensor x = embed(ids, documents.positions, cache.length);
    for (size_t i = 0; i < h_.size(); ++i) {
      const nn::CachedLayer cached{cache.layers[i], cache.length};
      x = h_[i]->forward(x, documents, &cached);
    }
    cache.length += T;
    const Tensor last = contiguous(slice(x, 1, T - 1, T));
    return reshape(linear(ln_f_.forward(last), table), {B, config().padded_vocab});
  });
}

std::vector<NamedProduct> Gpt2::products() const {
  const int64_t C = config().width;
  return {{"QKV", C, 3 * C},
          {"attention output", C, C},
          {"FFN up", C, 4 * C},
          {"FFN down", 4 * C, C},
          {"classifier", C, config().padded_vocab}};
}

}  // namespace shale::models
