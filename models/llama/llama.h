#pragma once

#include <memory>
#include <vector>

#include "shale/models/language/model.h"
#include "shale/runtime/nn/layers.h"

namespace shale::models {

// Llama (Touvron et al., arXiv:2302.13971, arXiv:2307.09288) and similar models: RMSNorm, rotary
// positions (arXiv:2104.09864), grouped-query attention (arXiv:2305.13245), SwiGLU
// (arXiv:2002.05202); no dropout. Parameter names are those of the published weights without
// "model."; weights are [out, in].
//
// Activations that a block saves for backward with width C, H heads of size D, G heads of keys and
// values, and feed-forward width F, in elements of the compute dtype per token (and f32 values):
//   4 C + (2 H + 2 G) D + 3 F (+ H + 2)
// These are the block's input, both norms' outputs, q, k, v, attention's output, the residual
// stream after attention, gate, up and their product; norms of q and k save their inputs too. An
// MoE block with k active experts saves k (2 C + 3 F) instead of 3 F, and the router's logits in
// f32. With --recompute full, a block saves only its input, C.
class Llama : public LanguageModel {
 public:
  // Makes a model without memory. Throws ConfigError for inconsistent sizes.
  Llama(const LanguageModelConfig& config, const LanguageModelPolicy& policy);
  ~Llama() override;
  std::vector<Module*> blocks() override;
  std::vector<nn::Piece> pieces() override;
  Tensor next_logits(const Tensor& ids, KvCache& cache, const Documents& documents = {}) override;
  double flops_per_token(int64_t seq_len) const override;
  std::vector<NamedProduct> products() const override;

 private:
  class Block;

  nn::Embedding& head();  // returns the embedding with the output layer's weight

  nn::Embedding embed_tokens_;
  std::vector<std::unique_ptr<Block>> layers_;
  nn::RmsNorm norm_;
  std::unique_ptr<nn::Embedding> lm_head_;  // null: the output layer has the embedding's weight
};

}  // namespace shale::models
