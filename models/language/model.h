#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/models/language/attention_pattern.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/nn/piece.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/rope.h"

namespace shale::models {

// The architecture of a decoder-only transformer: what its parameters belong to. A family takes
// from it what it has (models/language/family.h).
struct LanguageModelConfig {
  std::string family = "gpt2";
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t vocab = 256;         // tokens
  int64_t padded_vocab = 256;  // rows of the embedding; the rest of the rows is never predicted
  int64_t context = 256;       // longest sequence
  float norm_eps = 1e-5f;
  Gelu gelu = Gelu::kTanh;
  bool tied = true;  // the output layer's weight is the embedding
  AttentionPattern pattern = {};  // of every layer

  // What Llama and its relatives have besides (models/llama/llama.h).
  int64_t kv_heads = 0;     // of keys and values, a divisor of heads; 0: as many
  int64_t head_size = 0;    // 0: width / heads
  int64_t hidden = 0;       // width inside the feed-forward block, or inside each expert
  int64_t window = 0;       // tokens that attention sees at most; 0: all
  int64_t full_layers = 0;  // the first so many layers have no window
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope = {};
  // Limits that scores of attention, scaled, and logits approach: softcap * tanh(x / softcap)
  // (arXiv:2408.00118, section 2); 0: none.
  float attention_softcap = 0, logit_softcap = 0;

  // Of mixtures of experts (runtime/nn/moe.h).
  int64_t experts = 0;         // 0: every token goes through one block
  int64_t active_experts = 0;  // of a token
  bool renormalise = false;    // the weights of a token's experts add up to 1
};

// How a run trains it.
struct LanguageModelPolicy {
  float dropout = 0;            // after the embedding and on each residual branch
  int64_t loss_chunk_rows = 0;  // logits of at most so many tokens at a time; 0: of all
  // Of mixtures of experts (RouterOptions, runtime/ops/moe.h).
  float balance_loss = 0.01f;
  float router_z_loss = 0;
  double capacity_factor = 0;
};

// Where the documents of a batch lie, which neither see each other nor count positions together:
// both undefined, each row is one.
struct Documents {
  Tensor positions = {};   // [B, T] i32: of each token in its document
  Tensor first_keys = {};  // [B, T] i32: the place in its row where its document begins
};

// Keys and values of the tokens seen so far, for generation.
struct KvCache {
  std::vector<Tensor> layers = {};  // [B, room, 2, heads of keys and values, D] each
  int64_t length = 0;               // tokens in it
  int64_t capacity = 0;             // room for so many, if the context is not less; 0: the context
};

// A product that every step makes: of its input with a weight [out, in], and the two products of
// its gradients.
struct NamedProduct {
  std::string name;  // "QKV"
  int64_t in = 0;
  int64_t out = 0;
};

// What training and generation need of a model.
class LanguageModel : public Module {
 public:
  explicit LanguageModel(const LanguageModelConfig& config, const LanguageModelPolicy& policy = {})
      : config_(config), policy_(policy) {}
  const LanguageModelConfig& config() const { return config_; }
  const LanguageModelPolicy& policy() const { return policy_; }

  // The repeated parts, in order: the units of data parallelism.
  virtual std::vector<Module*> blocks() = 0;

  // The model as a list of pieces, in order: the embedding, which is fed "inputs", blocks, and what
  // makes the loss, which is fed "targets". Between two of them goes [B, T, width] in the compute
  // dtype. Empty for a model that is no such list, which is then no pipeline, and has a loss() of
  // its own.
  virtual std::vector<nn::Piece> pieces() { return {}; }

  // Sum of the cross-entropy over all tokens, a scalar f32: what all pieces make. ids, targets:
  // [B, T] i32, T <= context.
  virtual Tensor loss(const Tensor& ids, const Tensor& targets, const Documents& documents = {});
  // That of each token: [B T] f32, 0 where the target does not count. Throws ConfigError for a
  // model that is no list of pieces, or is cut over ranks.
  Tensor token_losses(const Tensor& ids, const Tensor& targets, const Documents& documents = {});
  // Runs some of the pieces, which follow each other, under the model's hooks. x: what the one
  // before them has made; undefined for the first. ids, targets: needed by the first and the last.
  Tensor run_pieces(std::span<const nn::Piece> some, const Tensor& x, const Tensor& ids,
                    const Tensor& targets, const Documents& documents = {});

  // Logits of the token after ids, [B, padded_vocab]; ids [B, T] continue what is in the cache.
  // Places in `documents` count from the cache's first token. Records nothing for backward. Throws
  // ShapeError when the cache would outgrow its room.
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache,
                             const Documents& documents = {}) = 0;

  // FLOPs of forward and backward per token at sequence length T: 6 N + 6 L C T, with N the number
  // of parameters and causal attention counted as half, of which a pattern has its share.
  virtual double flops_per_token(int64_t seq_len) const;

  // The products of a block and those around the blocks, for tables of where a step's time goes;
  // what is left out shows there by its shape.
  virtual std::vector<NamedProduct> products() const { return {}; }

 protected:
  // Those of the batch whose pieces are run.
  const Documents& documents() const { return documents_; }
  // What the last piece makes of x [B, T, width] by the output layer.
  Tensor output_loss(nn::Embedding& head, const Tensor& x, const Tensor& targets) const;
  // The tokens that the cache has room for. Throws ShapeError unless so many more fit.
  int64_t cache_room(const KvCache& cache, int64_t more) const;

 private:
  LanguageModelConfig config_;
  LanguageModelPolicy policy_;
  Documents documents_;
  bool by_token_ = false;  // output_loss() gives each token's
};

// Rows of the embedding for a vocabulary: the next multiple of 128, which GEMMs like.
inline int64_t pad_vocab(int64_t vocab) {
  return (vocab + 127) / 128 * 128;
}

}  // namespace shale::models
