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

// Architecture of a decoder-only transformer, which determines its parameters. Each family uses a
// subset of the fields (models/language/family.h).
struct LanguageModelConfig {
  std::string family = "gpt2";
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t vocab = 256;         // number of tokens
  int64_t padded_vocab = 256;  // rows of the embedding; padding rows are never predicted
  int64_t context = 256;       // maximum sequence length
  float norm_eps = 1e-5f;
  Gelu gelu = Gelu::kTanh;
  bool tied = true;               // the output layer uses the embedding's weight
  AttentionPattern pattern = {};  // pattern of attention in every layer

  // Fields of Llama and its relatives (models/llama/llama.h).
  int64_t kv_heads = 0;     // number of heads of keys and values, a divisor of heads; 0: heads
  int64_t head_size = 0;    // 0: width / heads
  int64_t hidden = 0;       // width inside the feed-forward block, or of each expert
  int64_t window = 0;       // tokens in a sliding window of attention; 0: no window
  int64_t full_layers = 0;  // number of layers without a window, at the start of the model
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope = {};
  // Softcaps of attention scores, after scaling, and of logits: softcap * tanh(x / softcap)
  // (arXiv:2408.00118, section 2); 0: none.
  float attention_softcap = 0, logit_softcap = 0;

  // MoE models (runtime/nn/moe.h).
  int64_t experts = 0;         // number of experts; 0: dense model
  int64_t active_experts = 0;  // number of experts per token (top-k)
  bool renormalise = false;    // the weights of a token's experts add up to 1
};

// Training options of a model.
struct LanguageModelPolicy {
  float dropout = 0;  // probability of dropout after the embedding and on each residual branch
  int64_t loss_chunk_rows = 0;  // tokens whose logits are computed at once; 0: all
  // Options of MoE models; see RouterOptions (runtime/ops/moe.h).
  float balance_loss = 0.01f;
  float router_z_loss = 0;
  double capacity_factor = 0;
};

// Documents in the rows of a batch. They do not attend to each other, and each has its own
// positions. If both tensors are undefined, each row is one document.
struct Documents {
  Tensor positions = {};   // [B, T] i32: position of each token in its document
  // [B, T] i32: index in the row of the first token of the token's document
  Tensor first_keys = {};
};

// Keys and values of the tokens generated so far and of the prompt.
struct KvCache {
  // Per layer: [B, allocated tokens, 2, heads of keys and values, D].
  std::vector<Tensor> layers = {};
  int64_t length = 0;               // number of cached tokens
  int64_t capacity = 0;             // capacity in tokens, at most the context; 0: the context
};

// Named GEMM [rows, in] x [in, out] that runs in every step. The GEMMs of its gradients have the
// same name.
struct NamedProduct {
  std::string name;  // name in tables, for example "QKV"
  int64_t in = 0;
  int64_t out = 0;
};

// Interface of a model for training and generation.
class LanguageModel : public Module {
 public:
  explicit LanguageModel(const LanguageModelConfig& config, const LanguageModelPolicy& policy = {})
      : config_(config), policy_(policy) {}
  const LanguageModelConfig& config() const { return config_; }
  const LanguageModelPolicy& policy() const { return policy_; }

  // Returns the repeated blocks, in order. Data parallelism shards and reduces block by block.
  virtual std::vector<Module*> blocks() = 0;

  // Returns the model as a list of pieces, in order: the embedding with input "inputs", the blocks,
  // and the loss with input "targets". They pass on a tensor [B, T, width] in the compute dtype.
  // Empty: the model does not support pipelines, and overrides loss().
  virtual std::vector<nn::Piece> pieces() { return {}; }

  // Returns the sum of the cross-entropy over all tokens, an f32 scalar. The default runs all
  // pieces, one after the other. ids, targets: [B, T] i32, T <= context.
  virtual Tensor loss(const Tensor& ids, const Tensor& targets, const Documents& documents = {});
  // Returns the cross-entropy of each token, [B T] f32; 0 for ignored targets. Throws ConfigError
  // for a sharded model, and for a model without pieces.
  Tensor token_losses(const Tensor& ids, const Tensor& targets, const Documents& documents = {});
  // Runs consecutive pieces of the model, with the model's hooks. x: output of the previous piece;
  // undefined for the model's first piece. The first piece uses ids, the last piece uses targets.
  Tensor run_pieces(std::span<const nn::Piece> some, const Tensor& x, const Tensor& ids,
                    const Tensor& targets, const Documents& documents = {});

  // Returns the logits of the token after the last one of ids, [B, padded_vocab]. ids [B, T]
  // continue the cached tokens. Indices in `documents` count from the first cached token. Records
  // nothing for backward. Throws ShapeError if the cache would exceed its capacity.
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache,
                             const Documents& documents = {}) = 0;

  // Returns the FLOPs of forward and backward per token at sequence length T: 6 N + 6 L C T for N
  // parameters, L layers and width C. This counts half of the attention, as it is causal. A pattern
  // reduces the second term to the fraction of blocks that it keeps.
  virtual double flops_per_token(int64_t seq_len) const;

  // Returns the GEMMs to which tables of step time give names. Those tables show other GEMMs by
  // shape.
  virtual std::vector<NamedProduct> products() const { return {}; }

 protected:
  // Documents of the batch that run_pieces() or loss() is processing.
  const Documents& documents() const { return documents_; }
  // Applies the output layer and the loss to x [B, T, width].
  Tensor output_loss(nn::Embedding& head, const Tensor& x, const Tensor& targets) const;
  // Returns the cache's capacity in tokens. Throws ShapeError unless it has room for `more` tokens.
  int64_t cache_room(const KvCache& cache, int64_t more) const;

 private:
  LanguageModelConfig config_;
  LanguageModelPolicy policy_;
  Documents documents_;
  bool by_token_ = false;  // output_loss() returns the loss of each token instead of the sum
};

// Rounds a vocabulary up to a multiple of 128 rows, for efficient GEMMs.
inline int64_t pad_vocab(int64_t vocab) {
  return (vocab + 127) / 128 * 128;
}

}  // namespace shale::models
