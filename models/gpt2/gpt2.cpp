#include "shale/models/gpt2/gpt2.h"

#include <cmath>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/shape.h"

// B sequences, T tokens, C width, H heads, D = C / H.
namespace shale::models {
namespace {

constexpr float kInitStd = 0.02f;

// Branches that add to the residual stream start smaller, so that its variance does not grow with
// depth (section 2.3 of the paper).
Init residual_init(const LanguageModelConfig& config) {
  return Init::normal(kInitStd / std::sqrt(2.0f * static_cast<float>(config.layers)));
}

// Dropouts are told apart by a number: 0 is the embedding's.
uint32_t dropout_site(int64_t layer, uint32_t branch) {
  return 1 + 2 * static_cast<uint32_t>(layer) + branch;
}

struct Attention : Module {
  Attention(Module* parent, const LanguageModelConfig& config)
      : Module(parent, "attn"),
        c_attn(this, "c_attn", config.width, 3 * config.width, Init::normal(kInitStd)),
        c_proj(this, "c_proj", config.width, config.width, residual_init(config)),
        heads(config.heads) {}

  // Attention before its output layer. x: [B, T, C].
  Tensor forward(const Tensor& x) { return packed_attention(c_attn.forward(x), heads); }
  Tensor forward_cached(const Tensor& x, Tensor& cache, int64_t length);

  nn::Linear c_attn;
  nn::Linear c_proj;
  int64_t heads;
};

Tensor Attention::forward_cached(const Tensor& x, Tensor& cache, int64_t length) {
  const int64_t B = x.size(0), T = x.size(1), C = x.size(2);
  const Tensor qkv = reshape(c_attn.forward(x), {B, T, 3, heads, C / heads});
  const auto part = [](const Tensor& t, int64_t i) {  // [B, T, n, H, D] to [B, T, H, D]
    const Tensor one = slice(t, 2, i, i + 1);
    return one.alias({t.size(0), t.size(1), t.size(3), t.size(4)},
                     {one.strides()[0], one.strides()[1], one.strides()[3], one.strides()[4]});
  };
  Tensor fresh = slice(cache, 1, length, length + T);
  copy_(fresh, slice(qkv, 2, 1, 3));
  const Tensor seen = slice(cache, 1, 0, length + T);
  return reshape(attention(part(qkv, 0), part(seen, 0), part(seen, 1)), {B, T, C});
}

struct Mlp : Module {
  Mlp(Module* parent, const LanguageModelConfig& config)
      : Module(parent, "mlp"),
        c_fc(this, "c_fc", config.width, 4 * config.width, Init::normal(kInitStd)),
        c_proj(this, "c_proj", 4 * config.width, config.width, residual_init(config)),
        gelu(config.gelu) {}

  Tensor forward(const Tensor& x, const Tensor& residual) {
    return run(x, [this, residual](const Tensor& in) {
      return ffn(in, c_fc.weight.value, c_fc.bias->value, c_proj.weight.value, c_proj.bias->value,
                 enter(residual), gelu);
    });
  }

  nn::Linear c_fc;
  nn::Linear c_proj;
  Gelu gelu;
};

}  // namespace

class Gpt2::Block : public Module {
 public:
  Block(Module* parent, int64_t layer, const LanguageModelConfig& config, float dropout)
      : Module(parent, cat("h.", layer)),
        ln_1_(this, "ln_1", config.width, config.norm_eps),
        attn_(this, config),
        ln_2_(this, "ln_2", config.width, config.norm_eps),
        mlp_(this, config),
        layer_(layer),
        dropout_(dropout) {}

  Tensor forward(const Tensor& input) {
    return run(input, [this](const Tensor& in) {
      const auto [normed, x] = ln_1_.forward_stream(in);
      return finish(attn_.forward(normed), x);
    });
  }

  Tensor forward_cached(const Tensor& input, Tensor& cache, int64_t length) {
    return run(input, [&](const Tensor& in) {
      const auto [normed, x] = ln_1_.forward_stream(in);
      return finish(attn_.forward_cached(normed, cache, length), x);
    });
  }

 private:
  // What follows the attention: its output layer and the feed-forward half.
  Tensor finish(const Tensor& attended, const Tensor& x) {
    const bool drops = dropout_ > 0 && x.context().autograd().training;
    if (!drops) {  // both residual additions ride on GEMMs
      const auto [normed, y] = ln_2_.forward_stream(attn_.c_proj.forward(attended, x));
      return mlp_.forward(normed, y);
    }
    const Tensor branch = dropout(attn_.c_proj.forward(attended), dropout_, site(0), x);
    const auto [normed, y] = ln_2_.forward_stream(branch);
    return dropout(mlp_.forward(normed, {}), dropout_, site(1), y);
  }
  uint32_t site(uint32_t branch) const { return dropout_site(layer_, branch); }

  nn::LayerNorm ln_1_;
  Attention attn_;
  nn::LayerNorm ln_2_;
  Mlp mlp_;
  int64_t layer_;
  float dropout_;
};

Gpt2::Gpt2(const LanguageModelConfig& config, const LanguageModelPolicy& policy)
    : LanguageModel(config, policy),
      wte_(this, "wte", config.padded_vocab, config.width, Init::normal(kInitStd)),
      wpe_(this, "wpe", config.context, config.width, Init::normal(kInitStd)),
      h_(),
      ln_f_(this, "ln_f", config.width, config.norm_eps) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    h_.push_back(std::make_unique<Block>(this, layer, config, policy.dropout));
  }
}

Gpt2::~Gpt2() = default;

std::vector<Module*> Gpt2::blocks() {
  std::vector<Module*> blocks;
  for (const auto& block : h_) blocks.push_back(block.get());
  return blocks;
}

Tensor Gpt2::loss(const Tensor& input, const Tensor& targets) {
  return run(input, [&](const Tensor& ids) {
    Tensor x = embedding(ids, wte_.weight.value, wpe_.weight.value);
    if (policy().dropout > 0 && x.context().autograd().training) {
      x = dropout(x, policy().dropout, /*site=*/0);
    }
    for (const auto& block : h_) x = block->forward(x);
    x = ln_f_.forward(x);
    const Tensor rows = reshape(x, {-1, config().width});
    return linear_cross_entropy(rows, wte_.weight.value, reshape(targets, {-1}), config().vocab,
                                policy().loss_chunk_rows);
  });
}

Tensor Gpt2::next_logits(const Tensor& input, KvCache& cache) {
  const Inference inference(input.context());
  const int64_t B = input.size(0), T = input.size(1), H = config().heads;
  const int64_t room = cache_room(cache, T);
  return run(input, [&](const Tensor& ids) {
    const Tensor& table = wte_.weight.value;
    while (cache.layers.size() < h_.size()) {
      cache.layers.push_back(
          empty(ids.context(), {B, room, 2, H, config().width / H}, table.dtype()));
    }
    Tensor x = embedding(ids, table, wpe_.weight.value, cache.length);
    for (size_t i = 0; i < h_.size(); ++i) {
      x = h_[i]->forward_cached(x, cache.layers[i], cache.length);
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
