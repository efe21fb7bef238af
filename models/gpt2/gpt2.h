#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shale/models/language/model.h"
#include "shale/runtime/nn/layers.h"

namespace shale::models {

// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): pre-norm
// transformer blocks, learned positions, the output layer tied to the token embedding. Parameter
// names are those of the published weights; all weights are [out, in].
//
// Activations that a block saves for backward with B sequences of T tokens, width C and H heads, in
// elements of the compute dtype per token (and f32 values), by --recompute:
//   none       16 C (+ H + 4): its input, both norms' outputs, q, k and v, attention's output, the
//              residual stream after attention, 4 C before and 4 C after GELU; per head the
//              log-sum-exp, per norm mean and 1 / deviation
//   selective  10 C (+ H + 4): without the outputs of norms and GELU
//   full          C: its input
class Gpt2 : public LanguageModel {
 public:
  Gpt2(const LanguageModelConfig& config, const LanguageModelPolicy& policy);
  ~Gpt2() override;
  std::vector<Module*> blocks() override;
  std::vector<nn::Piece> pieces() override;
  Tensor next_logits(const Tensor& ids, KvCache& cache, const Documents& documents = {}) override;
  std::vector<NamedProduct> products() const override;

 private:
  class Block;

  Tensor embed(const Tensor& ids);
  Tensor embed(const Tensor& ids, const Tensor& positions, int64_t first_position);
  Tensor loss_of(const Tensor& x, const Tensor& targets);

  nn::Embedding wte_;
  nn::Embedding wpe_;
  std::vector<std::unique_ptr<Block>> h_;
  nn::LayerNorm ln_f_;
};

}  // namespace shale::models
