#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/ffn.h"

namespace shale::models {

// Size and settings of a decoder-only transformer.
struct LanguageModelConfig {
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t vocab = 256;         // tokens
  int64_t padded_vocab = 256;  // rows of the embedding; the rest of the rows is never predicted
  int64_t context = 256;       // longest sequence
  float norm_eps = 1e-5f;
  Gelu gelu = Gelu::kTanh;
  float dropout = 0;                       // after the embedding and on each residual branch
  Recompute recompute = Recompute::kNone;  // of each block, in backward
  int64_t loss_chunk_rows = 0;             // logits of at most so many tokens at a time; 0: of all
};

// Keys and values of the tokens seen so far, for generation.
struct KvCache {
  std::vector<Tensor> layers;  // [B, context, 2, H, D] each
  int64_t length = 0;          // tokens in it
};

// What the trainer and the generator need of a model.
class LanguageModel : public Module {
 public:
  explicit LanguageModel(const LanguageModelConfig& config) : config_(config) {}
  const LanguageModelConfig& config() const { return config_; }

  // The repeated parts, in order: the units of data parallelism.
  virtual std::vector<Module*> blocks() = 0;

  // Sum of the cross-entropy over all tokens, a scalar f32. ids, targets: [B, T] i32, T <= context.
  virtual Tensor loss(const Tensor& ids, const Tensor& targets) = 0;

  // Logits of the token after ids, [B, padded_vocab]; ids [B, T] continue what is in the cache.
  // Records nothing for backward. Throws ShapeError when the cache would outgrow the context.
  virtual Tensor next_logits(const Tensor& ids, KvCache& cache) = 0;

  // FLOPs of forward and backward per token at sequence length T: 6 N + 6 L C T, with N the number
  // of parameters and causal attention counted as half.
  double flops_per_token(int64_t seq_len) const;

 private:
  LanguageModelConfig config_;
};

// A rate that suits a model of this size, from table 2.1 of "Language Models are Few-Shot Learners"
// (arXiv:2005.14165) where it has one.
double default_lr(const std::string& preset_name);

// The configuration behind a name of --model ("nano", "gpt2-124m", ...). Throws ConfigError that
// lists the names. nano has a byte vocabulary and takes its context from seq_len.
LanguageModelConfig preset(const std::string& name, int64_t seq_len);
std::vector<std::string> preset_names();

// Rows of the embedding for a vocabulary: the next multiple of 128, which GEMMs like.
int64_t pad_vocab(int64_t vocab);

// Throws ConfigError unless sizes are positive and width is a multiple of heads.
std::unique_ptr<LanguageModel> make_language_model(const LanguageModelConfig& config);

}  // namespace shale::models
